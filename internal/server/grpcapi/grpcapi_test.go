// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
	"github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
	"github.com/trireme-mpi/trireme/internal/server/operation"
)

// scripted is a fake service that records its calls and returns prepared results. The real
// service is tested with a real API server; this one is for errors and streams.
type scripted struct {
	// Interface has the calls of REST only.
	jobservice.Interface
	asked []string
	// err is returned by all calls, if it is set; streams end with endOfStream.
	err, endOfStream error
	events           []*jobwatch.Event
	lines            []joblog.Line
	past             []history.Line
	created          client.Object
}

var _ jobservice.Interface = (*scripted)(nil)

func (s *scripted) note(format string, arguments ...any) error {
	s.asked = append(s.asked, fmt.Sprintf(format, arguments...))
	return s.err
}

func refText(ref jobservice.JobRef) string {
	return fmt.Sprintf("%s %s/%s", ref.Kind.Kind, ref.Namespace, ref.Name)
}

// jobOf returns a job as the service does.
func jobOf(kind *jobview.Kind, namespace, name string) client.Object {
	object := kind.NewObject()
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetUID("1-2-3")
	object.SetCreationTimestamp(metav1.NewTime(created))
	switch object := object.(type) {
	case *v2beta1.MPIJob:
		object.Spec.SlotsPerWorker = new(int32(2))
		object.Status.Phase = "Running"
	case *v2alpha1.TrainJob:
		object.Spec.Trainer.Image = "image"
		object.Status.Phase = "Running"
	}
	return object
}

var created = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func (s *scripted) Create(_ context.Context, kind *jobview.Kind, namespace string, object client.Object, dryRun bool) (client.Object, error) {
	s.created = object
	return jobOf(kind, namespace, object.GetName()+object.GetGenerateName()), s.note("create %s %s/%s dryRun=%t", kind.Kind, namespace, object.GetName(), dryRun)
}

func (s *scripted) Get(_ context.Context, ref jobservice.JobRef) (client.Object, error) {
	return jobOf(ref.Kind, ref.Namespace, ref.Name), s.note("get %s", refText(ref))
}

func (s *scripted) List(_ context.Context, kind *jobview.Kind, query jobwatch.Query) (*jobwatch.Page, error) {
	job := jobOf(kind, "team", "pi")
	page := &jobwatch.Page{Entries: []jobwatch.Entry{{Object: job, Row: jobview.Of(job).Row()}}, Continue: "next", Total: 7, ResourceVersion: "9"}
	return page, s.note("list %s namespace=%q labels=%q status=%q runtime=%q name=%q sort=%q limit=%d continue=%q",
		kind.Kind, query.Namespace, query.Labels, query.Status, query.Runtime, query.Name, query.Sort, query.Limit, query.Continue)
}

func (s *scripted) Delete(_ context.Context, ref jobservice.JobRef, options jobservice.DeleteOptions) error {
	grace := int64(-1)
	if options.GracePeriodSeconds != nil {
		grace = *options.GracePeriodSeconds
	}
	return s.note("delete %s grace=%d dryRun=%t", refText(ref), grace, options.DryRun)
}

func (s *scripted) Suspend(_ context.Context, ref jobservice.JobRef, suspend bool) (client.Object, error) {
	return jobOf(ref.Kind, ref.Namespace, ref.Name), s.note("suspend %s %t", refText(ref), suspend)
}

func (s *scripted) Restart(_ context.Context, ref jobservice.JobRef) (client.Object, error) {
	return jobOf(ref.Kind, ref.Namespace, ref.Name+"-retry-1"), s.note("restart %s", refText(ref))
}

// preparedStream is a stream that ends as prepared, or with the context.
func preparedStream[Element any](ctx context.Context, elements []Element, end error) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		for _, element := range elements {
			if !yield(element, nil) {
				return
			}
		}
		if end != nil {
			var none Element
			yield(none, end)
			return
		}
		<-ctx.Done()
	}
}

func (s *scripted) Watch(ctx context.Context, kind *jobview.Kind, watch jobwatch.Watch) (iter.Seq2[*jobwatch.Event, error], error) {
	return preparedStream(ctx, s.events, s.endOfStream), s.note("watch %s %s/%s since %q", kind.Kind, watch.Namespace, watch.Name, watch.Since)
}

// WatchAll is for browsers, which have few connections; gRPC has WatchJobs for each kind.
func (s *scripted) WatchAll(ctx context.Context, namespace string, _ map[*jobview.Kind]string) (iter.Seq2[*jobwatch.Event, error], error) {
	return preparedStream(ctx, s.events, s.endOfStream), s.note("watch all %s", namespace)
}

func (s *scripted) Logs(ctx context.Context, ref jobservice.JobRef, options jobservice.LogOptions) (iter.Seq2[joblog.Line, error], error) {
	worker, tail := int32(-1), int64(-1)
	if options.Worker != nil {
		worker = *options.Worker
	}
	if options.Tail != nil {
		tail = *options.Tail
	}
	_, bounded := ctx.Deadline()
	err := s.note("logs %s role=%q worker=%d container=%q follow=%t previous=%t tail=%d since=%s bounded=%t",
		refText(ref), options.Role, worker, options.Container, options.Follow, options.Previous, tail, options.Since.Format(time.TimeOnly), bounded)
	if s.endOfStream != nil {
		return preparedStream(ctx, s.lines, s.endOfStream), err
	}
	return func(yield func(joblog.Line, error) bool) {
		for _, line := range s.lines {
			if !yield(line, nil) {
				return
			}
		}
	}, err
}

func (s *scripted) Events(_ context.Context, ref jobservice.JobRef) ([]jobservice.Event, error) {
	return []jobservice.Event{{Type: "Warning", Reason: "BackOff", Message: "m", Timestamp: created, Source: "kubelet", Object: "Pod/p", Count: 2}}, s.note("events %s", refText(ref))
}

func (s *scripted) Usage(_ context.Context, ref jobservice.JobRef, window time.Duration) (*usage.Report, error) {
	pod := usage.Pod{PodName: "w", Index: new(int32(0)), CPU: []usage.Sample{{Timestamp: created, Value: 1.5}}}
	return &usage.Report{Source: "metrics-api", Workers: []usage.Pod{pod}}, s.note("usage %s %s", refText(ref), window)
}

func (s *scripted) Diagnose(_ context.Context, ref jobservice.JobRef) (*preflight.Diagnosis, error) {
	return &preflight.Diagnosis{
		Kind: string(ref.Kind.Kind), State: "Pending", Hindered: true,
		Conditions: []preflight.Answered{{Type: "Running", Status: "False", LastTransitionTime: &metav1.Time{Time: created}, ObservedGeneration: 2}},
		Findings:   []preflight.Finding{{Rank: preflight.Certain, Check: "Quota", Title: "t", Cause: "c", Object: "o", Fix: "f", Documentation: "d"}},
	}, s.note("diagnose %s", refText(ref))
}

func (s *scripted) Preflight(_ context.Context, kind *jobview.Kind, namespace string, object client.Object) (*preflight.PreflightReport, error) {
	name := "nothing"
	if object != nil {
		name = object.GetName()
	}
	found := &preflight.PreflightReport{Namespace: namespace, Report: preflight.Report{Passed: 1, Total: 2, Outcomes: []preflight.Outcome{{Check: "Quota", Result: preflight.Fail, Findings: []preflight.Finding{{Rank: preflight.Note}}}}}}
	return found, s.note("preflight %s %s/%s", kind.Kind, namespace, name)
}

func (s *scripted) Quota(_ context.Context, namespace string) (*jobservice.Quota, error) {
	return &jobservice.Quota{Namespace: namespace, ActiveJobs: 3}, s.note("quota %s", namespace)
}

func (s *scripted) Runtimes(_ context.Context, query jobservice.RuntimeQuery) ([]jobservice.Runtime, error) {
	return []jobservice.Runtime{{Name: "r", Kind: "ClusterTrainingRuntime", Framework: "MPI", MPIImplementation: "OpenMPI", NumNodes: 2}}, s.note("runtimes %q %q", query.Namespace, query.Framework)
}

func (s *scripted) Runtime(_ context.Context, namespace, name string) (*jobservice.Runtime, error) {
	object := &v2alpha1.TrainingRuntime{}
	object.Name = name
	object.Spec.MLPolicy.MPIImplementation = "OpenMPI"
	return &jobservice.Runtime{Name: name, Namespace: namespace, Object: object}, s.note("runtime %s/%s", namespace, name)
}

// clients of an in-process server.
type clients struct {
	connection *grpc.ClientConn
	mpi        wire.MPIJobServiceClient
	train      wire.TrainJobServiceClient
	jobs       wire.JobServiceClient
	history    wire.HistoryServiceClient
	// records are the audit records of the calls.
	records []*auth.Record
}

// serve runs a server like the real one: it converts errors with Status, and records
// calls.
func serve(t testing.TB, asked jobservice.Interface) *clients {
	t.Helper()
	found := &clients{}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(append(Options(),
		grpc.UnaryInterceptor(func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			row, known := operation.Lookup(info.FullMethod)
			if !known {
				t.Errorf("%s has no row in the table of operations", info.FullMethod)
				row = &operation.Operation{}
			}
			record := row.Record()
			found.records = append(found.records, record)
			answer, err := handle(auth.WithRecord(ctx, record), message)
			if err != nil {
				return nil, Status(err)
			}
			return answer, nil
		}),
		grpc.StreamInterceptor(func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := handle(service, stream); err != nil {
				return Status(err)
			}
			return nil
		}))...,
	)
	Register(server, asked)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	found.connection = connection
	found.mpi, found.train, found.jobs = wire.NewMPIJobServiceClient(connection), wire.NewTrainJobServiceClient(connection), wire.NewJobServiceClient(connection)
	found.history = wire.NewHistoryServiceClient(connection)
	return found
}

// received returns the messages of a stream, and its error: nil for success.
func received[Message any](stream grpc.ServerStreamingClient[Message], err error) ([]*Message, error) {
	if err != nil {
		return nil, err
	}
	var messages []*Message
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return messages, nil
		}
		if err != nil {
			return messages, err
		}
		messages = append(messages, message)
	}
}

func (s *scripted) Ranks(_ context.Context, ref jobservice.JobRef) (*reports.JobRanks, error) {
	return &reports.JobRanks{}, s.note("ranks of %s", refText(ref))
}

func (s *scripted) Curves(_ context.Context, ref jobservice.JobRef) (*reports.JobCurves, error) {
	return &reports.JobCurves{}, s.note("curves of %s", refText(ref))
}

// summaryOf is the summary of a job's record.
func summaryOf(kind *jobview.Kind, namespace, name string) history.Summary {
	return history.Summary{
		Key: history.Key{NamespaceUID: "7", Kind: kind.Kind, UID: "1-2-3"}, Namespace: namespace, Name: name, State: "Failed", FailureReason: "TrainingError",
		CreationTime: created, FinishTime: created.Add(time.Minute), LogLines: 12, OmittedLines: 3,
	}
}

func (s *scripted) History(_ context.Context, kind *jobview.Kind, namespace string, limit int) (*history.RecordList, error) {
	list := &history.RecordList{Items: []history.Summary{summaryOf(kind, namespace, "pi")}, Total: 5}
	return list, s.note("history %s %s limit=%d", kind.Kind, namespace, limit)
}

func (s *scripted) Past(_ context.Context, ref jobservice.JobRef) (*history.Record, error) {
	return &history.Record{
		Summary: summaryOf(ref.Kind, ref.Namespace, ref.Name), Job: []byte(`{"spec": {"slotsPerWorker": 2}}`),
		Events: []history.RecordedEvent{{Type: "Warning", Reason: "BackOff", Message: "m", Time: created, Object: "Pod/p", Count: 2}},
		Curves: []reports.Curve{{Name: "loss", Points: []reports.Point{{Time: created, Step: new(int64(5)), Value: 2}}}},
	}, s.note("past %s", refText(ref))
}

func (s *scripted) PastLogs(ctx context.Context, ref jobservice.JobRef, rank *int) (iter.Seq2[history.Line, error], error) {
	selected := "all"
	if rank != nil {
		selected = fmt.Sprint(*rank)
	}
	return preparedStream(ctx, s.past, s.endOfStream), s.note("past logs %s rank=%s", refText(ref), selected)
}

func (s *scripted) DeletePast(_ context.Context, ref jobservice.JobRef) error {
	return s.note("delete past %s", refText(ref))
}
