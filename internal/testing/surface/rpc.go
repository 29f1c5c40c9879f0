// SPDX-License-Identifier: Apache-2.0

package surface

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/trireme-mpi/trireme/api/grpc/training" // so that its messages are known by their names
)

// Dial is a connection of gRPC.
func Dial(t testing.TB, address string, trust *tls.Config) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(trust)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// WithToken is a context of somebody who calls over gRPC.
func WithToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// Methods are all that the running server has, but for those of gRPC itself.
func Methods(t testing.TB, connection *grpc.ClientConn, token string) (all []protoreflect.MethodDescriptor) {
	t.Helper()
	asking, err := grpc_reflection_v1.NewServerReflectionClient(connection).ServerReflectionInfo(WithToken(t.Context(), token))
	if err != nil {
		t.Fatal(err)
	}
	if err := asking.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	answer, err := asking.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range answer.GetListServicesResponse().GetService() {
		if strings.HasPrefix(service.GetName(), "grpc.") {
			continue
		}
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service.GetName()))
		if err != nil {
			t.Fatal(err)
		}
		list := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range list.Len() {
			all = append(all, list.Get(i))
		}
	}
	if len(all) < fewestMethods {
		t.Fatalf("the server has only %d methods", len(all))
	}
	return all
}

// Request is one for a job of a namespace, whatever else it may have. The kind counts
// where a method is for both.
func Request(t testing.TB, method protoreflect.MethodDescriptor, kind, namespace, name string) proto.Message {
	t.Helper()
	known, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	message := known.New()
	fields := method.Input().Fields()
	for field, value := range map[protoreflect.Name]string{"namespace": namespace, "name": name, "kind": kind} {
		if known := fields.ByName(field); known != nil {
			message.Set(known, protoreflect.ValueOfString(value))
		}
	}
	if fields.ByName("namespace") == nil {
		t.Fatalf("%s is about no namespace: what can be seen with it?", method.FullName())
	}
	if spec := fields.ByName("spec"); spec != nil {
		message.Mutable(spec)
	}
	if job := fields.ByName("job"); job != nil {
		if err := protojson.Unmarshal([]byte(strings.ReplaceAll(jobMessage, "NAME", name)), message.Mutable(job).Message().Interface()); err != nil {
			t.Fatal(err)
		}
	}
	return message.Interface()
}

// jobMessage is a job as messages have it.
const jobMessage = `{"trainjob":{"name":"NAME","spec":{"runtime_ref":{"kind":"ClusterTrainingRuntime","name":"mpi-openmpi-cpu"},"trainer":{"image":"example","command":["true"]}}}}`

// Call makes a call, and returns the first answer as JSON. A stream that says nothing
// for a while has been let in.
func Call(t testing.TB, connection *grpc.ClientConn, token string, method protoreflect.MethodDescriptor, message proto.Message) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(WithToken(t.Context(), token), 10*time.Second)
	defer cancel()
	known, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		t.Fatal(err)
	}
	answer := known.New().Interface()
	path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	if !method.IsStreamingServer() {
		err := connection.Invoke(ctx, path, message, answer)
		return protojson.Format(answer), err
	}
	time.AfterFunc(2*time.Second, cancel)
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		return "", err
	}
	if err := stream.SendMsg(message); err != nil {
		return "", err
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	err = stream.RecvMsg(answer)
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		err = nil
	}
	return protojson.Format(answer), err
}
