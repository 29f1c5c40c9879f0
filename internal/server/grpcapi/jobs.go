// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/controller-runtime/pkg/client"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/grpcapi/objects"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// jobs implements training.JobService.
type jobs struct {
	wire.UnimplementedJobServiceServer
	*shared
}

// kindRequest is a request about one job of either kind.
type kindRequest interface {
	jobRequest
	GetKind() string
}

func jobRefOfKind(request kindRequest) (jobservice.JobRef, error) {
	kind, err := kindOf(request.GetKind())
	if err != nil {
		return jobservice.JobRef{}, err
	}
	return jobRef(kind, request)
}

// jobMessage converts a job of either kind to a message.
func jobMessage(object client.Object) (*wire.Job, error) {
	if jobview.Of(object).Kind == jobview.TrainJobs {
		message := &wire.TrainJob{}
		return &wire.Job{Job: &wire.Job_Trainjob{Trainjob: message}}, objects.ToMessage(object, message)
	}
	message := &wire.MPIJob{}
	return &wire.Job{Job: &wire.Job_Mpijob{Mpijob: message}}, objects.ToMessage(object, message)
}

// change applies a change to the job of a request.
func change(ctx context.Context, request kindRequest, apply func(jobservice.JobRef) (client.Object, error)) (*wire.Job, error) {
	ref, err := jobRefOfKind(request)
	if err != nil {
		return nil, err
	}
	recordJob(ctx, ref, false)
	object, err := apply(ref)
	if err != nil {
		return nil, err
	}
	return jobMessage(object)
}

// Suspend deletes the pods of a job and keeps the job.
func (j *jobs) Suspend(ctx context.Context, request *wire.SuspendRequest) (*wire.SuspendResponse, error) {
	changed, err := change(ctx, request, func(ref jobservice.JobRef) (client.Object, error) { return j.service.Suspend(ctx, ref, true) })
	return &wire.SuspendResponse{Job: changed}, err
}

// Resume starts a suspended job.
func (j *jobs) Resume(ctx context.Context, request *wire.ResumeRequest) (*wire.ResumeResponse, error) {
	changed, err := change(ctx, request, func(ref jobservice.JobRef) (client.Object, error) { return j.service.Suspend(ctx, ref, false) })
	return &wire.ResumeResponse{Job: changed}, err
}

// Restart creates a copy of a failed job and deletes the failed job.
func (j *jobs) Restart(ctx context.Context, request *wire.RestartRequest) (*wire.RestartResponse, error) {
	created, err := change(ctx, request, func(ref jobservice.JobRef) (client.Object, error) { return j.service.Restart(ctx, ref) })
	return &wire.RestartResponse{Job: created}, err
}

// ListEvents returns the events of a job and the warnings of its pods.
func (j *jobs) ListEvents(ctx context.Context, request *wire.ListEventsRequest) (*wire.ListEventsResponse, error) {
	ref, err := jobRefOfKind(request)
	if err != nil {
		return nil, err
	}
	events, err := j.service.Events(ctx, ref)
	return toMessage(struct {
		Events []jobservice.Event `json:"events"`
	}{events}, err, &wire.ListEventsResponse{})
}

const (
	defaultWindow = time.Hour
	maxWindow     = 7 * 24 * time.Hour
)

// GetUsage returns the resource usage of a job's pods.
func (j *jobs) GetUsage(ctx context.Context, request *wire.GetUsageRequest) (*wire.GetUsageResponse, error) {
	ref, err := jobRefOfKind(request)
	if err != nil {
		return nil, err
	}
	window := defaultWindow
	if requested := request.GetWindow(); requested != nil {
		window = requested.AsDuration()
		if !requested.IsValid() || window <= 0 || window > maxWindow {
			return nil, apierror.Invalid("window", "must be greater than 0 and at most seven days")
		}
	}
	report, err := j.service.Usage(ctx, ref, window)
	return toMessage(report, err, &wire.GetUsageResponse{})
}

// toMessage converts a result of the service to a message.
func toMessage[Message proto.Message](value any, err error, message Message) (Message, error) {
	if err != nil {
		return message, err
	}
	return message, objects.ToMessage(value, message)
}

// Diagnose finds why a job does not run, or why it failed.
func (j *jobs) Diagnose(ctx context.Context, request *wire.DiagnoseRequest) (*wire.DiagnoseResponse, error) {
	ref, err := jobRefOfKind(request)
	if err != nil {
		return nil, err
	}
	diagnosis, err := j.service.Diagnose(ctx, ref)
	return toMessage(diagnosis, err, &wire.DiagnoseResponse{})
}

// Preflight checks whether a job can run.
func (j *jobs) Preflight(ctx context.Context, request *wire.PreflightRequest) (*wire.PreflightResponse, error) {
	if err := checkNames(nameField{field: "namespace", value: request.GetNamespace()}); err != nil {
		return nil, err
	}
	kind, object, err := submittedJob(request.GetJob())
	if err != nil {
		return nil, err
	}
	checked, err := j.service.Preflight(ctx, kind, request.GetNamespace(), object)
	return toMessage(checked, err, &wire.PreflightResponse{})
}

// submittedJob returns the job of a preflight request; nil if there is none.
func submittedJob(submitted *wire.Job) (*jobview.Kind, client.Object, error) {
	kind, message := jobview.MPIJobs, proto.Message(submitted.GetMpijob())
	switch {
	case submitted == nil:
		return jobview.MPIJobs, nil, nil
	case submitted.GetJob() == nil:
		return nil, nil, invalid("job", "job must have an mpijob or a trainjob")
	case submitted.GetTrainjob() != nil:
		kind, message = jobview.TrainJobs, submitted.GetTrainjob()
	}
	object := kind.NewObject()
	return kind, object, objects.FromMessage(message, object)
}

// GetQuota returns the quotas of a namespace and their usage.
func (j *jobs) GetQuota(ctx context.Context, request *wire.GetQuotaRequest) (*wire.GetQuotaResponse, error) {
	if err := checkNames(nameField{field: "namespace", value: request.GetNamespace()}); err != nil {
		return nil, err
	}
	quota, err := j.service.Quota(ctx, request.GetNamespace())
	return toMessage(quota, err, &wire.GetQuotaResponse{})
}

// ListRuntimes returns the runtimes of the cluster and of a namespace.
func (j *jobs) ListRuntimes(ctx context.Context, request *wire.ListRuntimesRequest) (*wire.ListRuntimesResponse, error) {
	if err := checkNames(nameField{field: "namespace", value: request.GetNamespace(), optional: true}); err != nil {
		return nil, err
	}
	runtimes, err := j.service.Runtimes(ctx, jobservice.RuntimeQuery{Namespace: request.GetNamespace(), Framework: request.GetFramework()})
	return toMessage(struct {
		Items []jobservice.Runtime `json:"items"`
	}{runtimes}, err, &wire.ListRuntimesResponse{})
}

// GetRuntime returns a runtime with its whole object.
func (j *jobs) GetRuntime(ctx context.Context, request *wire.GetRuntimeRequest) (*wire.GetRuntimeResponse, error) {
	if err := checkNames(nameField{field: "namespace", value: request.GetNamespace(), optional: true}, nameField{field: "name", value: request.GetName()}); err != nil {
		return nil, err
	}
	runtime, err := j.service.Runtime(ctx, request.GetNamespace(), request.GetName())
	if err != nil {
		return nil, err
	}
	message, err := toMessage(runtime, nil, &wire.Runtime{})
	if err != nil {
		return nil, err
	}
	message.Object, err = objects.ToStruct(runtime.Object)
	return &wire.GetRuntimeResponse{Runtime: message}, err
}

// WatchJobs streams the changes of the jobs of a namespace.
func (j *jobs) WatchJobs(request *wire.WatchJobsRequest, stream grpc.ServerStreamingServer[wire.JobEvent]) error {
	kind, err := kindOf(request.GetKind())
	if err != nil {
		return err
	}
	if err := checkNames(nameField{field: "namespace", value: request.GetNamespace()}, nameField{field: "name", value: request.GetName(), optional: true}); err != nil {
		return err
	}
	events, err := j.service.Watch(stream.Context(), kind, jobwatch.Watch{Namespace: request.GetNamespace(), Name: request.GetName(), Since: request.GetResourceVersion()})
	if err != nil {
		return err
	}
	if err := sendHeader(stream); err != nil {
		return err
	}
	for event, err := range events {
		if err != nil {
			return err
		}
		message := &wire.JobEvent{EventType: string(event.Type), ResourceVersion: event.ResourceVersion}
		if event.Row != nil {
			if message.Row, err = toMessage(event.Row, nil, &wire.JobRow{}); err != nil {
				return err
			}
		}
		if err := stream.Send(message); err != nil {
			return err
		}
	}
	return stream.Context().Err()
}
