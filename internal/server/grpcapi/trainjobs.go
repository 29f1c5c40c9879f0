// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/grpcapi/objects"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// trainJobs implements training.TrainJobService.
type trainJobs struct {
	wire.UnimplementedTrainJobServiceServer
	*shared
}

// CreateTrainJob creates a job.
func (t *trainJobs) CreateTrainJob(ctx context.Context, request *wire.CreateTrainJobRequest) (*wire.CreateTrainJobResponse, error) {
	job := &wire.TrainJob{Namespace: request.GetNamespace(), Name: request.GetName(), Labels: request.GetLabels(), Annotations: request.GetAnnotations(), Spec: request.GetSpec()}
	stored := &wire.TrainJob{}
	if err := t.create(ctx, jobview.TrainJobs, request, request.GetSpec() != nil, job, stored); err != nil {
		return nil, err
	}
	return &wire.CreateTrainJobResponse{Name: stored.GetName(), Namespace: stored.GetNamespace(), Uid: stored.GetUid(), CreatedAt: stored.GetCreatedAt(), Trainjob: stored}, nil
}

// GetTrainJob returns a job.
func (t *trainJobs) GetTrainJob(ctx context.Context, request *wire.GetTrainJobRequest) (*wire.GetTrainJobResponse, error) {
	object, err := t.get(ctx, jobview.TrainJobs, request)
	if err != nil {
		return nil, err
	}
	response := &wire.GetTrainJobResponse{Trainjob: &wire.TrainJob{}}
	return response, objects.ToMessage(object, response.GetTrainjob())
}

// ListTrainJobs returns a page of jobs.
func (t *trainJobs) ListTrainJobs(ctx context.Context, request *wire.ListTrainJobsRequest) (*wire.ListTrainJobsResponse, error) {
	query, err := listQuery(request)
	if err != nil {
		return nil, err
	}
	query.Runtime = request.GetRuntime()
	page, err := t.service.List(ctx, jobview.TrainJobs, query)
	if err != nil {
		return nil, err
	}
	items, err := list(page, func() *wire.TrainJob { return &wire.TrainJob{} })
	return &wire.ListTrainJobsResponse{Items: items, ContinueToken: page.Continue, Total: int32(page.Total), ResourceVersion: page.ResourceVersion}, err
}

// DeleteTrainJob deletes a job.
func (t *trainJobs) DeleteTrainJob(ctx context.Context, request *wire.DeleteTrainJobRequest) (*wire.DeleteTrainJobResponse, error) {
	message, err := t.delete(ctx, jobview.TrainJobs, request, request.GracePeriodSeconds)
	return &wire.DeleteTrainJobResponse{Message: message}, err
}

// GetTrainJobStatus returns the status of a job.
func (t *trainJobs) GetTrainJobStatus(ctx context.Context, request *wire.GetTrainJobStatusRequest) (*wire.GetTrainJobStatusResponse, error) {
	object, err := t.get(ctx, jobview.TrainJobs, request)
	if err != nil {
		return nil, err
	}
	response := &wire.GetTrainJobStatusResponse{Status: &wire.TrainJobStatus{}}
	return response, objects.ToMessage(&object.(*v2alpha1.TrainJob).Status, response.GetStatus())
}

// WatchTrainJobStatus streams the status of a job when it changes.
func (t *trainJobs) WatchTrainJobStatus(request *wire.WatchTrainJobStatusRequest, stream grpc.ServerStreamingServer[wire.TrainJobStatusEvent]) error {
	return t.watchStatus(stream, jobview.TrainJobs, request, func(event *jobwatch.Event, resourceVersion string) error {
		message := &wire.TrainJobStatusEvent{EventType: string(event.Type), Status: &wire.TrainJobStatus{}, Timestamp: timestamppb.New(t.now()), ResourceVersion: resourceVersion}
		if err := objects.ToMessage(&event.Object.(*v2alpha1.TrainJob).Status, message.GetStatus()); err != nil {
			return err
		}
		return stream.Send(message)
	})
}

// GetTrainJobLogs streams the log lines of a job's pods.
func (t *trainJobs) GetTrainJobLogs(request *wire.GetTrainJobLogsRequest, stream grpc.ServerStreamingServer[wire.LogMessage]) error {
	return t.logs(stream, jobview.TrainJobs, request, request.PodIndex, request.TailLines)
}
