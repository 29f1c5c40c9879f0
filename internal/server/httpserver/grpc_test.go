// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
)

// method describes a method of a fake service.
func method(name string, answer func(context.Context, string) (string, error)) grpc.MethodDesc {
	handle := func(ctx context.Context, message any) (any, error) {
		said, err := answer(ctx, message.(*wrapperspb.StringValue).Value)
		return wrapperspb.String(said), err
	}
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		message := &wrapperspb.StringValue{}
		if err := decode(message); err != nil {
			return nil, err
		}
		return interceptor(ctx, message, &grpc.UnaryServerInfo{FullMethod: "/training.MPIJobService/" + name}, handle)
	}}
}

// registerJobs adds fake services.
func registerJobs(server *grpc.Server) {
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "training.MPIJobService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			method("GetMPIJob", func(ctx context.Context, name string) (string, error) {
				return auth.CallerFrom(ctx).User + " reads " + name, nil
			}),
			method("CreateMPIJob", func(ctx context.Context, name string) (string, error) {
				auth.RecordFrom(ctx).Name = name
				switch name {
				case "":
					return "", apierror.Invalid("name", "name is required")
				case "too-much":
					return "", apierror.New(http.StatusTooManyRequests, "TooManyRequests", "too much is being sent")
				}
				return name, nil
			}),
			method("DeleteMPIJob", func(context.Context, string) (string, error) { panic("a mistake") }),
		},
		Streams: []grpc.StreamDesc{{StreamName: "WatchMPIJobStatus", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			if err := stream.SendMsg(wrapperspb.String(auth.CallerFrom(stream.Context()).User + " watches")); err != nil {
				return err
			}
			<-stream.Context().Done()
			return stream.Context().Err()
		}}},
	}, nil)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "training.JobService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{method("Suspend", func(ctx context.Context, _ string) (string, error) {
			auth.RecordFrom(ctx).Kind = "MPIJob"
			return "", status.Error(codes.NotFound, "no such job")
		})},
	}, nil)
}

func (r *running) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

func as(t *testing.T, user string) context.Context {
	if user == "" {
		return t.Context()
	}
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+user)
}

func TestGRPC(t *testing.T) {
	running := start(t, api(), func(options *Options) {
		options.RegisterGRPC, options.Limits = registerJobs, Limits{Rate: 0.001, Burst: 2, Streams: 1}
	})
	connection := running.dial(t)
	for _, test := range []struct {
		method, user, message string
		code                  codes.Code
		// want is the response, or a part of the error.
		want string
	}{
		{method: "MPIJobService/GetMPIJob", user: "jane", message: "hello", want: "jane reads hello"},
		{method: "MPIJobService/GetMPIJob", message: "hello", code: codes.Unauthenticated, want: "who are you?"},
		{method: "MPIJobService/CreateMPIJob", user: "jane", message: "hello", want: "hello"},
		{method: "MPIJobService/CreateMPIJob", user: "jane", message: "hello", code: codes.ResourceExhausted, want: "more than 0.001 requests per second"},
		{method: "MPIJobService/CreateMPIJob", user: "max", code: codes.InvalidArgument, want: "name is required"},
		{method: "MPIJobService/DeleteMPIJob", user: "max", message: "hello", code: codes.Internal, want: "Internal server error"},
		{method: "JobService/Suspend", user: "eve", message: "hello", code: codes.NotFound, want: "no such job"},
		{method: "MPIJobService/CreateMPIJob", message: "hello", code: codes.Unauthenticated, want: "who are you?"},
		{method: "MPIJobService/GetMPIJob", user: "eve", message: strings.Repeat("x", maxBody+1), code: codes.ResourceExhausted, want: "larger than max"},
	} {
		var answer wrapperspb.StringValue
		err := connection.Invoke(as(t, test.user), "/training."+test.method, wrapperspb.String(test.message), &answer)
		if status.Code(err) != test.code || err == nil && answer.Value != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s of %q: %q and %v", test.method, test.user, answer.Value, err)
		}
	}
	var got []string
	for _, line := range lines(t, running.audit) {
		got = append(got, fmt.Sprintf("%s %s %s %s %v", line["user"], line["verb"], line["kind"], line["name"], line["code"]))
	}
	want := []string{
		"jane create MPIJob hello 200", "jane create MPIJob  429", "max create MPIJob  400", "max delete MPIJob  500", "eve patch MPIJob  404", " create MPIJob  401",
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Error(difference)
	}
}

func TestGRPCStreamEndsWithToken(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.RegisterGRPC, options.Limits.Streams = registerJobs, 1 })
	connection := running.dial(t)
	open := func(user string) grpc.ClientStream {
		t.Helper()
		stream, err := connection.NewStream(as(t, user), &grpc.StreamDesc{ServerStreams: true}, "/training.MPIJobService/WatchMPIJobStatus")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		return stream
	}
	stream := open("jane")
	var message wrapperspb.StringValue
	if err := stream.RecvMsg(&message); err != nil || message.Value != "jane watches" {
		t.Fatalf("%q and %v", message.Value, err)
	}
	if err := open("jane").RecvMsg(&message); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second stream gets %v", err)
	}
	running.guard.revoke("jane")
	if err := stream.RecvMsg(&message); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream of a revoked token ends with %v", err)
	}
}

// A client that starts a call and sends nothing does not hold it forever; a stream whose
// message was read continues.
func TestGRPCMessageNeverSent(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.RegisterGRPC = registerJobs })
	// Long enough for a client that sends.
	running.messageTimeout = 2 * time.Second
	connection := running.dial(t)
	watching, err := connection.NewStream(as(t, "jane"), &grpc.StreamDesc{ServerStreams: true}, "/training.MPIJobService/WatchMPIJobStatus")
	if err != nil {
		t.Fatal(err)
	}
	if err := watching.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var message wrapperspb.StringValue
	if err := watching.RecvMsg(&message); err != nil {
		t.Fatal(err)
	}
	stalled, err := connection.NewStream(as(t, "jane"), &grpc.StreamDesc{}, "/training.MPIJobService/GetMPIJob")
	if err != nil {
		t.Fatal(err)
	}
	if err := stalled.RecvMsg(&message); err == nil {
		t.Error("a call without a message was answered")
	}
	// The deadline has passed for both of them by now.
	running.guard.revoke("jane")
	if err := watching.RecvMsg(&message); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ended with %v before its token did", err)
	}
}

func TestMethodWithoutRowIsRefused(t *testing.T) {
	for name, service := range map[string]*grpc.ServiceDesc{
		"no row":                     {ServiceName: "training.MPIJobService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "SuspendMPIJob"}}},
		"stream in the table only":   {ServiceName: "training.MPIJobService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "GetMPIJobLogs"}}},
		"stream in the service only": {ServiceName: "training.MPIJobService", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{StreamName: "GetMPIJob", ServerStreams: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Options{Registry: prometheus.NewRegistry(), RegisterGRPC: func(server *grpc.Server) { server.RegisterService(service, nil) }})
			if err == nil || !strings.Contains(err.Error(), "table of operations") {
				t.Errorf("New returns %v", err)
			}
		})
	}
}
