// Package rpc is what can be asked of the server, over gRPC. It translates: messages
// into what the service is asked, and its answers into messages.
//
// Its methods return errors as they come; Status is what clients see of them.
package rpc

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/internal/problem"
	"github.com/trireme-mpi/trireme/internal/service"
)

// edge is what all services share.
type edge struct {
	service service.Interface
	now     func() time.Time
}

// Register adds the services of jobs, with what tells clients of them: reflection
// and health. The server must pass errors through Status.
func Register(server *grpc.Server, asked service.Interface) {
	shared := &edge{service: asked, now: time.Now}
	server.RegisterService(readable(wire.MPIJobService_ServiceDesc), &mpiJobs{edge: shared})
	server.RegisterService(readable(wire.TrainJobService_ServiceDesc), &trainJobs{edge: shared})
	server.RegisterService(readable(wire.JobService_ServiceDesc), &jobs{edge: shared})
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
}

// readable is a service for whose methods a message that cannot be read is a fault
// of the client's. gRPC itself would say that the server has failed.
func readable(description grpc.ServiceDesc) *grpc.ServiceDesc {
	methods := description.Methods
	description.Methods = nil
	for _, method := range methods {
		handle := method.Handler
		method.Handler = func(service any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return handle(service, ctx, func(message any) error { return Status(unreadable(decode(message))) }, interceptor)
		}
		description.Methods = append(description.Methods, method)
	}
	streams := description.Streams
	description.Streams = nil
	for _, method := range streams {
		handle := method.Handler
		method.Handler = func(service any, stream grpc.ServerStream) error { return handle(service, &readableStream{stream}) }
		description.Streams = append(description.Streams, method)
	}
	return &description
}

type readableStream struct{ grpc.ServerStream }

// RecvMsg reads a message.
func (stream *readableStream) RecvMsg(message any) error {
	return unreadable(stream.ServerStream.RecvMsg(message))
}

func unreadable(err error) error {
	if err == nil || status.Code(err) != codes.Internal {
		return err
	}
	return problem.New(http.StatusBadRequest, "BadRequest", fmt.Sprintf("The message cannot be read: %s", status.Convert(err).Message()),
		"Encode it by the proto files; reflection tells them")
}
