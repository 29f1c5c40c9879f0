// SPDX-License-Identifier: Apache-2.0

// Package grpcapi is the server's gRPC API. It converts messages to calls of the job
// service, and results to messages.
//
// Its methods return errors unchanged; Status converts them for clients.
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

// shared has what all services share.
type shared struct {
	service jobservice.Interface
	now     func() time.Time
}

// Register adds the job services, reflection and health. The server must be created with
// Options, and convert errors with Status.
func Register(server *grpc.Server, service jobservice.Interface) {
	s := &shared{service: service, now: time.Now}
	server.RegisterService(withDecodeErrors(wire.MPIJobService_ServiceDesc), &mpiJobs{shared: s})
	server.RegisterService(withDecodeErrors(wire.TrainJobService_ServiceDesc), &trainJobs{shared: s})
	server.RegisterService(withDecodeErrors(wire.JobService_ServiceDesc), &jobs{shared: s})
	server.RegisterService(withDecodeErrors(wire.HistoryService_ServiceDesc), &records{shared: s})
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
}
