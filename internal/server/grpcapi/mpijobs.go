// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/grpcapi/objects"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// mpiJobs implements training.MPIJobService.
type mpiJobs struct {
	wire.UnimplementedMPIJobServiceServer
	*shared
}

// CreateMPIJob creates a job.
func (m *mpiJobs) CreateMPIJob(ctx context.Context, request *wire.CreateMPIJobRequest) (*wire.CreateMPIJobResponse, error) {
	job := &wire.MPIJob{Namespace: request.GetNamespace(), Name: request.GetName(), Labels: request.GetLabels(), Annotations: request.GetAnnotations(), Spec: request.GetSpec()}
	stored := &wire.MPIJob{}
	if err := m.create(ctx, jobview.MPIJobs, request, request.GetSpec() != nil, job, stored); err != nil {
		return nil, err
	}
	return &wire.CreateMPIJobResponse{Name: stored.GetName(), Namespace: stored.GetNamespace(), Uid: stored.GetUid(), CreatedAt: stored.GetCreatedAt(), Mpijob: stored}, nil
}

// GetMPIJob returns a job.
func (m *mpiJobs) GetMPIJob(ctx context.Context, request *wire.GetMPIJobRequest) (*wire.GetMPIJobResponse, error) {
	object, err := m.get(ctx, jobview.MPIJobs, request)
	if err != nil {
		return nil, err
	}
	response := &wire.GetMPIJobResponse{Mpijob: &wire.MPIJob{}}
	return response, objects.ToMessage(object, response.GetMpijob())
}

// ListMPIJobs returns a page of jobs.
func (m *mpiJobs) ListMPIJobs(ctx context.Context, request *wire.ListMPIJobsRequest) (*wire.ListMPIJobsResponse, error) {
	query, err := listQuery(request)
	if err != nil {
		return nil, err
	}
	page, err := m.service.List(ctx, jobview.MPIJobs, query)
	if err != nil {
		return nil, err
	}
	items, err := list(page, func() *wire.MPIJob { return &wire.MPIJob{} })
	return &wire.ListMPIJobsResponse{Items: items, ContinueToken: page.Continue, Total: int32(page.Total), ResourceVersion: page.ResourceVersion}, err
}

// DeleteMPIJob deletes a job.
func (m *mpiJobs) DeleteMPIJob(ctx context.Context, request *wire.DeleteMPIJobRequest) (*wire.DeleteMPIJobResponse, error) {
	message, err := m.delete(ctx, jobview.MPIJobs, request, request.GracePeriodSeconds)
	return &wire.DeleteMPIJobResponse{Message: message}, err
}

// GetMPIJobStatus returns the status of a job.
func (m *mpiJobs) GetMPIJobStatus(ctx context.Context, request *wire.GetMPIJobStatusRequest) (*wire.GetMPIJobStatusResponse, error) {
	object, err := m.get(ctx, jobview.MPIJobs, request)
	if err != nil {
		return nil, err
	}
	response := &wire.GetMPIJobStatusResponse{Status: &wire.MPIJobStatus{}}
	return response, objects.ToMessage(&object.(*v2beta1.MPIJob).Status, response.GetStatus())
}

// WatchMPIJobStatus streams the status of a job when it changes.
func (m *mpiJobs) WatchMPIJobStatus(request *wire.WatchMPIJobStatusRequest, stream grpc.ServerStreamingServer[wire.MPIJobStatusEvent]) error {
	return m.watchStatus(stream, jobview.MPIJobs, request, func(event *jobwatch.Event, resourceVersion string) error {
		message := &wire.MPIJobStatusEvent{EventType: string(event.Type), Status: &wire.MPIJobStatus{}, Timestamp: timestamppb.New(m.now()), ResourceVersion: resourceVersion}
		if err := objects.ToMessage(&event.Object.(*v2beta1.MPIJob).Status, message.GetStatus()); err != nil {
			return err
		}
		return stream.Send(message)
	})
}

// GetMPIJobLogs streams the log lines of a job's pods.
func (m *mpiJobs) GetMPIJobLogs(request *wire.GetMPIJobLogsRequest, stream grpc.ServerStreamingServer[wire.LogMessage]) error {
	return m.logs(stream, jobview.MPIJobs, request, request.PodIndex, request.TailLines)
}
