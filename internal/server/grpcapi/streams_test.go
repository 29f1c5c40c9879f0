// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

func eventOf(what jobwatch.EventType, kind *jobview.Kind, resourceVersion string) *jobwatch.Event {
	object := jobOf(kind, "team", "pi")
	return &jobwatch.Event{Type: what, Object: object, Row: jobview.Of(object).Row(), ResourceVersion: resourceVersion}
}

var errTooOld = apierror.New(410, "Expired", "The version is too old: start over", "Watch without a resource version")

func TestWatchStatus(t *testing.T) {
	synced := &jobwatch.Event{Type: jobwatch.Synced, ResourceVersion: "5"}
	for name, test := range map[string]struct {
		events   []jobwatch.EventType
		versions []string
		end      error
		// want are types and versions.
		want     []string
		wantCode codes.Code
	}{
		"the job as it is has the version of the whole": {
			events: []jobwatch.EventType{jobwatch.Added, jobwatch.Synced, jobwatch.Modified}, versions: []string{"", "5", "6"},
			end: errTooOld, want: []string{"ADDED 5", "MODIFIED 6"}, wantCode: codes.OutOfRange,
		},
		"a job that is not there yet": {
			events: []jobwatch.EventType{jobwatch.Synced, jobwatch.Added}, versions: []string{"5", "6"},
			end: errTooOld, want: []string{"ADDED 6"}, wantCode: codes.OutOfRange,
		},
		"the end of the job is that of the stream": {
			events: []jobwatch.EventType{jobwatch.Modified, jobwatch.Deleted, jobwatch.Added}, versions: []string{"6", "7", "8"},
			want: []string{"MODIFIED 6", "DELETED 7"}, wantCode: codes.OK,
		},
		"what goes wrong on the way": {end: errors.New("x"), wantCode: codes.Internal},
	} {
		script := func(kind *jobview.Kind) *scripted {
			made := &scripted{endOfStream: test.end}
			for i, what := range test.events {
				event := eventOf(what, kind, test.versions[i])
				if what == jobwatch.Synced {
					event = synced
				}
				made.events = append(made.events, event)
			}
			return made
		}
		t.Run(name, func(t *testing.T) {
			mpi, err := received(serve(t, script(jobview.MPIJobs)).mpi.WatchMPIJobStatus(t.Context(), &wire.WatchMPIJobStatusRequest{Namespace: "team", Name: "pi"}))
			var got []string
			for _, event := range mpi {
				got = append(got, event.GetEventType()+" "+event.GetResourceVersion())
				if event.GetStatus().GetPhase() != "Running" || time.Since(event.GetTimestamp().AsTime()).Abs() > time.Minute {
					t.Errorf("got %v", event)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || status.Code(err) != test.wantCode {
				t.Errorf("ended with %v; %s", err, diff)
			}
			train, err := received(serve(t, script(jobview.TrainJobs)).train.WatchTrainJobStatus(t.Context(), &wire.WatchTrainJobStatusRequest{Namespace: "team", Name: "pi"}))
			got = nil
			for _, event := range train {
				got = append(got, event.GetEventType()+" "+event.GetResourceVersion())
				if event.GetStatus().GetPhase() != "Running" || time.Since(event.GetTimestamp().AsTime()).Abs() > time.Minute {
					t.Errorf("got %v", event)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || status.Code(err) != test.wantCode {
				t.Errorf("ended with %v; %s", err, diff)
			}
		})
	}
}

func TestWatchJobs(t *testing.T) {
	script := &scripted{endOfStream: errTooOld, events: []*jobwatch.Event{
		eventOf(jobwatch.Added, jobview.MPIJobs, ""), {Type: jobwatch.Synced, ResourceVersion: "5"}, eventOf(jobwatch.Deleted, jobview.MPIJobs, "6"), eventOf(jobwatch.Added, jobview.MPIJobs, "7"),
	}}
	got, err := received(serve(t, script).jobs.WatchJobs(t.Context(), &wire.WatchJobsRequest{Kind: "MPIJob", Namespace: "team", ResourceVersion: "3"}))
	row := &wire.JobRow{
		Kind: "MPIJob", Namespace: "team", Name: "pi", Uid: "1-2-3", Framework: "MPI", Status: "Running", Phase: "Running",
		Message: "Waiting for the operator to process the job", CreationTime: timestamppb.New(created),
	}
	want := []*wire.JobEvent{
		{EventType: "ADDED", Row: row}, {EventType: "SYNCED", ResourceVersion: "5"}, {EventType: "DELETED", Row: row, ResourceVersion: "6"}, {EventType: "ADDED", Row: row, ResourceVersion: "7"},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if told := status.Convert(err); told.Code() != codes.OutOfRange || !strings.Contains(told.Message(), "start over") {
		t.Errorf("ended with %v", err)
	}
	if diff := cmp.Diff([]string{`watch MPIJob team/ since "3"`}, script.asked); diff != "" {
		t.Error(diff)
	}
}

func TestLogs(t *testing.T) {
	script := &scripted{lines: []joblog.Line{
		{Pod: "pi-launcher", Role: "launcher", Worker: -1, Container: "mpi", Rank: joblog.NoRank, Time: created, Text: "caf\xe9"},
		{Pod: "pi-worker-0", Role: "worker", Worker: 0, Container: "mpi", Rank: 0, Time: created, Text: "long", Continues: true},
	}}
	server := serve(t, script)
	want := []*wire.LogMessage{
		{PodName: "pi-launcher", PodType: "launcher", ContainerName: "mpi", Timestamp: timestamppb.New(created), Message: "caf\ufffd"},
		{PodName: "pi-worker-0", PodType: "worker", PodIndex: new(int32(0)), Rank: new(int32(0)), ContainerName: "mpi", Timestamp: timestamppb.New(created), Message: "long", Continues: true},
	}
	mpi, err := received(server.mpi.GetMPIJobLogs(t.Context(), &wire.GetMPIJobLogsRequest{Namespace: "team", Name: "pi"}))
	if diff := cmp.Diff(want, mpi, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("ended with %v; %s", err, diff)
	}
	train, err := received(server.train.GetTrainJobLogs(t.Context(), &wire.GetTrainJobLogsRequest{Namespace: "team", Name: "pi"}))
	if diff := cmp.Diff(want, train, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("ended with %v; %s", err, diff)
	}
}

func TestRecordLogs(t *testing.T) {
	script := &scripted{endOfStream: errTooOld, past: []history.Line{
		{Pod: "pi-launcher", Rank: new(3), Time: created, Text: "caf\xe9"}, {Pod: "pi-launcher", Time: created, Text: "no tag"},
	}}
	server := serve(t, script)
	got, err := received(server.history.GetRecordLogs(t.Context(), &wire.GetRecordLogsRequest{Kind: "MPIJob", Namespace: "team", Name: "pi", Rank: new(int32(3))}))
	want := []*wire.LogMessage{
		{PodName: "pi-launcher", PodType: "launcher", Rank: new(int32(3)), Timestamp: timestamppb.New(created), Message: "caf\ufffd"},
		{PodName: "pi-launcher", PodType: "launcher", Timestamp: timestamppb.New(created), Message: "no tag"},
	}
	// A log that breaks off is no whole log.
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || status.Code(err) != codes.OutOfRange {
		t.Errorf("ended with %v; %s", err, diff)
	}
	_, _ = received(server.history.GetRecordLogs(t.Context(), &wire.GetRecordLogsRequest{Kind: "TrainJob", Namespace: "team", Name: "pi"}))
	if diff := cmp.Diff([]string{"past logs MPIJob team/pi rank=3", "past logs TrainJob team/pi rank=all"}, script.asked); diff != "" {
		t.Error(diff)
	}
}

func TestHistorySelection(t *testing.T) {
	server := serve(t, &scripted{})
	for _, limit := range []int32{-1, history.MaxList + 1} {
		if _, err := server.history.ListRecords(t.Context(), &wire.ListRecordsRequest{Kind: "MPIJob", Namespace: "team", Limit: limit}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	_, err := received(server.history.GetRecordLogs(t.Context(), &wire.GetRecordLogsRequest{Kind: "MPIJob", Namespace: "team", Name: "pi", Rank: new(int32(-1))}))
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("rank -1: %v", err)
	}
}

func TestLogSelection(t *testing.T) {
	for name, test := range map[string]struct {
		request *wire.GetMPIJobLogsRequest
		want    string
	}{
		"all pods":    {&wire.GetMPIJobLogsRequest{}, `role="" worker=-1 container="" follow=false previous=false tail=100 since=00:00:00 bounded=true`},
		"launcher":    {&wire.GetMPIJobLogsRequest{PodType: "launcher", TailLines: new(int64(0))}, `role="launcher" worker=-1 container="" follow=false previous=false tail=0 since=00:00:00 bounded=true`},
		"all workers": {&wire.GetMPIJobLogsRequest{PodType: "worker", Follow: true, TailLines: new(int64(-1))}, `role="worker" worker=-1 container="" follow=true previous=false tail=-1 since=00:00:00 bounded=false`},
		"one worker":  {&wire.GetMPIJobLogsRequest{PodIndex: new(int32(0)), Container: "c", Previous: true, SinceTime: timestamppb.New(created)}, `role="worker" worker=0 container="c" follow=false previous=true tail=100 since=12:00:00 bounded=true`},
	} {
		t.Run(name, func(t *testing.T) {
			script := &scripted{}
			test.request.Namespace, test.request.Name = "team", "pi"
			if _, err := received(serve(t, script).mpi.GetMPIJobLogs(t.Context(), test.request)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"logs MPIJob team/pi " + test.want}, script.asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// streams are all streaming methods; only their errors are returned.
var streams = map[string]func(context.Context, *clients) error{
	"WatchMPIJobStatus": func(ctx context.Context, server *clients) error {
		_, err := received(server.mpi.WatchMPIJobStatus(ctx, &wire.WatchMPIJobStatusRequest{Namespace: "team", Name: "pi"}))
		return err
	},
	"WatchTrainJobStatus": func(ctx context.Context, server *clients) error {
		_, err := received(server.train.WatchTrainJobStatus(ctx, &wire.WatchTrainJobStatusRequest{Namespace: "team", Name: "pi"}))
		return err
	},
	"WatchJobs": func(ctx context.Context, server *clients) error {
		_, err := received(server.jobs.WatchJobs(ctx, &wire.WatchJobsRequest{Kind: "TrainJob", Namespace: "team"}))
		return err
	},
	"GetRecordLogs": func(ctx context.Context, server *clients) error {
		_, err := received(server.history.GetRecordLogs(ctx, &wire.GetRecordLogsRequest{Kind: "MPIJob", Namespace: "team", Name: "pi"}))
		return err
	},
	"GetMPIJobLogs": func(ctx context.Context, server *clients) error {
		_, err := received(server.mpi.GetMPIJobLogs(ctx, &wire.GetMPIJobLogsRequest{Namespace: "team", Name: "pi", Follow: true}))
		return err
	},
	"GetTrainJobLogs": func(ctx context.Context, server *clients) error {
		_, err := received(server.train.GetTrainJobLogs(ctx, &wire.GetTrainJobLogsRequest{Namespace: "team", Name: "pi", Follow: true}))
		return err
	},
}

func TestForbiddenStreams(t *testing.T) {
	for name, ask := range streams {
		t.Run(name, func(t *testing.T) {
			if err := ask(t.Context(), serve(t, &scripted{err: apierror.New(403, "Forbidden", "no")})); status.Code(err) != codes.PermissionDenied {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFailingStreams(t *testing.T) {
	for name, ask := range streams {
		t.Run(name, func(t *testing.T) {
			if err := ask(t.Context(), serve(t, &scripted{endOfStream: apierror.New(503, "ServerStopping", "it ends")})); status.Code(err) != codes.Unavailable {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A client knows that its stream has started before the first message, and the stream ends
// with the call.
func TestStreamHeaderIsSentFirst(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := serve(t, &scripted{}).jobs.WatchJobs(ctx, &wire.WatchJobsRequest{Kind: "MPIJob", Namespace: "team"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
}
