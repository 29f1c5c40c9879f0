// Package rpc is what can be asked of the server, over gRPC. It translates: messages
// into what the service is asked, and its answers into messages.
//
// Its methods return errors as they come; Status is what clients see of them.
package grpcapi

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
)

// edge is what all services share.
type shared struct {
	service jobservice.Interface
	now     func() time.Time
}

// Register adds the services of jobs, with what tells clients of them: reflection
// and health. The server must be made with Options, and pass errors through Status.
func Register(server *grpc.Server, service jobservice.Interface) {
	s := &shared{service: service, now: time.Now}
	server.RegisterService(withDecodeErrors(wire.MPIJobService_ServiceDesc), &mpiJobs{shared: s})
	server.RegisterService(withDecodeErrors(wire.TrainJobService_ServiceDesc), &trainJobs{shared: s})
	server.RegisterService(withDecodeErrors(wire.JobService_ServiceDesc), &jobs{shared: s})
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
}
