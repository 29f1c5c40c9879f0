// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// sendHeader tells a client that its stream has started, which may be long before the
// first message.
func sendHeader(stream grpc.ServerStream) error { return stream.SendHeader(metadata.MD{}) }

// watchRequest is a request to watch a job.
type watchRequest interface {
	jobRequest
	GetResourceVersion() string
}

// watchStatus streams the changes of one job, until it is deleted.
//
// The first event, with the job as it is now, has no version to resume from: only the
// SYNCED event after it has one. So the first event is sent when SYNCED arrives.
func (s *shared) watchStatus(stream grpc.ServerStream, kind *jobview.Kind, request watchRequest, send func(event *jobwatch.Event, resourceVersion string) error) error {
	ref, err := jobRef(kind, request)
	if err != nil {
		return err
	}
	events, err := s.service.Watch(stream.Context(), kind, jobwatch.Watch{Namespace: ref.Namespace, Name: ref.Name, Since: request.GetResourceVersion()})
	if err != nil {
		return err
	}
	if err := sendHeader(stream); err != nil {
		return err
	}
	var first *jobwatch.Event
	for event, err := range events {
		switch {
		case err != nil:
			return err
		case event.Type == jobwatch.Synced && first != nil:
			err = send(first, event.ResourceVersion)
		case event.Type == jobwatch.Synced:
		case event.ResourceVersion == "":
			first = event
		default:
			err = send(event, event.ResourceVersion)
		}
		if err != nil || event.Type == jobwatch.Deleted {
			return err
		}
	}
	return stream.Context().Err()
}

// logsRequest is a request for logs.
type logsRequest interface {
	jobRequest
	GetPodType() string
	GetFollow() bool
	GetPrevious() bool
	GetContainer() string
	GetSinceTime() *timestamppb.Timestamp
}

const (
	// defaultTail is the number of lines from the end of each container's log; allLines
	// requests all of them.
	defaultTail = 100
	allLines    = -1
	// readTimeout is the timeout of reading logs without following them.
	readTimeout = 5 * time.Minute
)

// logs streams the log lines of a job's pods.
func (s *shared) logs(stream grpc.ServerStreamingServer[wire.LogMessage], kind *jobview.Kind, request logsRequest, podIndex *int32, tailLines *int64) error {
	ref, err := jobRef(kind, request)
	if err != nil {
		return err
	}
	options, err := logOptions(request, podIndex, tailLines)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	if !options.Follow {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, readTimeout)
		defer stop()
	}
	lines, err := s.service.Logs(ctx, ref, options)
	if err != nil {
		return err
	}
	if err := sendHeader(stream); err != nil {
		return err
	}
	for line, err := range lines {
		if err != nil {
			return err
		}
		if err := stream.Send(logMessage(line)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func logOptions(request logsRequest, podIndex *int32, tailLines *int64) (jobservice.LogOptions, error) {
	options := jobservice.LogOptions{
		Role: request.GetPodType(), Worker: podIndex, Container: request.GetContainer(),
		Follow: request.GetFollow(), Previous: request.GetPrevious(), Tail: new(int64(defaultTail)),
	}
	switch {
	case options.Role != "" && options.Role != training.RoleLauncher && options.Role != training.RoleWorker:
		return options, invalid("pod_type", "pod_type must be 'launcher' or 'worker'")
	case podIndex != nil && options.Role == training.RoleLauncher:
		return options, invalid("pod_index", "pod_index cannot be combined with the launcher: only workers have an index")
	case podIndex != nil && *podIndex < 0:
		return options, invalid("pod_index", "pod_index must not be negative")
	case tailLines != nil && *tailLines < allLines:
		return options, invalid("tail_lines", "tail_lines must be -1 (all lines) or greater")
	case options.Follow && options.Previous:
		return options, invalid("previous", "cannot be combined with follow: previous containers have finished")
	}
	if podIndex != nil {
		options.Role = training.RoleWorker
	}
	if tailLines != nil {
		options.Tail = tailLines
		if *tailLines == allLines {
			options.Tail = nil
		}
	}
	if since := request.GetSinceTime(); since != nil {
		if !since.IsValid() {
			return options, apierror.Invalid("since_time", "is not a valid time: seconds %d, nanos %d", since.GetSeconds(), since.GetNanos())
		}
		options.Since = since.AsTime()
	}
	return options, nil
}

func logMessage(line joblog.Line) *wire.LogMessage {
	message := &wire.LogMessage{
		PodName: line.Pod, ContainerName: line.Container, Timestamp: timestamppb.New(line.Time), PodType: line.Role, Continues: line.Continues,
		// Programs may print invalid UTF-8, which messages cannot hold.
		Message: strings.ToValidUTF8(line.Text, string(utf8.RuneError)),
	}
	if line.Role == training.RoleWorker {
		message.PodIndex = &line.Worker
	}
	if line.Rank != joblog.NoRank {
		message.Rank = new(int32(line.Rank))
	}
	return message
}
