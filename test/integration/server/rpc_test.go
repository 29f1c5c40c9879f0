package server

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

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
)

// dial is a connection of gRPC that believes the server's own certificate.
func (program *program) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(strings.TrimPrefix(program.url, "https://"), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// withToken is a context of somebody who calls over gRPC.
func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// methods are all that the running server has, but for those of gRPC itself: none that
// is added can be forgotten here.
func methods(t *testing.T, connection *grpc.ClientConn, token string) (all []protoreflect.MethodDescriptor) {
	t.Helper()
	asking, err := grpc_reflection_v1.NewServerReflectionClient(connection).ServerReflectionInfo(withToken(t.Context(), token))
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
	if len(all) < 25 {
		t.Fatalf("the server has only %d methods", len(all))
	}
	return all
}

// messageFor is a request for a job of a namespace, whatever else it may have.
func messageFor(t *testing.T, method protoreflect.MethodDescriptor, namespace, name string) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	message := kind.New()
	fields := method.Input().Fields()
	for field, value := range map[protoreflect.Name]string{"namespace": namespace, "name": name, "kind": "MPIJob"} {
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

// call makes a call, and returns the first answer as JSON. A stream that says nothing
// for a while has been let in.
func call(t *testing.T, connection *grpc.ClientConn, token string, method protoreflect.MethodDescriptor, message proto.Message) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(withToken(t.Context(), token), 10*time.Second)
	defer cancel()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		t.Fatal(err)
	}
	answer := kind.New().Interface()
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

// Every method is tried without a token, with a wrong one, and across the border of a
// namespace; and within it, so that what is refused is the border.
func TestNobodyCrossesTheBorderOverRPC(t *testing.T) {
	cluster := sharedCluster(t)
	jane, max := cluster.person(t, "jane"), cluster.person(t, "max")
	program := cluster.startServer(t, "--requests-per-second=10000", "--burst=10000")
	connection := program.dial(t)
	for _, kind := range []struct{ resource, body string }{{"mpijobs", simpleMPIJob("secret-plan")}, {"trainjobs", simpleTrainJob("secret-plan")}} {
		if got := ask(t, "POST", program.url+"/api/v1/namespaces/"+max.namespace+"/"+kind.resource, max.token, strings.NewReader(kind.body)); got.code != 201 {
			t.Fatalf("%d %s", got.code, got.body)
		}
	}
	for _, method := range methods(t, connection, jane.token) {
		t.Run(string(method.FullName()), func(t *testing.T) {
			message := messageFor(t, method, max.namespace, "secret-plan")
			for who, token := range map[string]string{"nobody": "", "somebody with a wrong token": "abc"} {
				if answer, err := call(t, connection, token, method, message); status.Code(err) != codes.Unauthenticated {
					t.Errorf("%s: %s %v", who, answer, err)
				}
			}
			answer, err := call(t, connection, jane.token, method, message)
			switch {
			case method.Name() == "Preflight":
				// It tells what one may not do, and nothing of what is there.
				if err != nil || !strings.Contains(answer, "You may not create trainjobs") {
					t.Errorf("%s %v", answer, err)
				}
			case status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), jane.user()) || !strings.Contains(err.Error(), max.namespace):
				t.Errorf("across the border: %s %v", answer, err)
			}
			if method.Name() == "GetQuota" {
				// The roles of jobs have no right to quotas, wherever.
				return
			}
			if _, err := call(t, connection, jane.token, method, messageFor(t, method, jane.namespace, "own")); status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.Unauthenticated {
				t.Errorf("in her own namespace: %v", err)
			}
		})
	}
}

// watchOverRPC watches the jobs of a person, and says how that ended.
func watchOverRPC(t *testing.T, connection *grpc.ClientConn, person *person) <-chan string {
	t.Helper()
	watching, err := wire.NewJobServiceClient(connection).WatchJobs(withToken(t.Context(), person.token), &wire.WatchJobsRequest{Kind: "MPIJob", Namespace: person.namespace})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watching.Header(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() {
		for {
			if _, err := watching.Recv(); err != nil {
				ended <- err.Error()
				return
			}
		}
	}()
	return ended
}
