// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
)

func mpiJobMessage(name string) *wire.MPIJob {
	return &wire.MPIJob{
		Name: name, Namespace: "team", Uid: "1-2-3", CreatedAt: timestamppb.New(created),
		Spec: &wire.MPIJobSpec{SlotsPerWorker: new(int32(2)), RunPolicy: &wire.RunPolicy{}}, Status: &wire.MPIJobStatus{Phase: "Running"},
	}
}

func trainJobMessage(name string) *wire.TrainJob {
	return &wire.TrainJob{
		Name: name, Namespace: "team", Uid: "1-2-3", CreatedAt: timestamppb.New(created),
		Spec: &wire.TrainJobSpec{RuntimeRef: &wire.RuntimeRef{}, Trainer: &wire.Trainer{Image: "image"}}, Status: &wire.TrainJobStatus{Phase: "Running"},
	}
}

func mpiJobOf(message *wire.MPIJob) *wire.Job {
	return &wire.Job{Job: &wire.Job_Mpijob{Mpijob: message}}
}

func trainJobOf(message *wire.TrainJob) *wire.Job {
	return &wire.Job{Job: &wire.Job_Trainjob{Trainjob: message}}
}

func recordMessage(kind string) *wire.Record {
	return &wire.Record{
		Kind: kind, Namespace: "team", Name: "pi", Uid: "1-2-3", State: "Failed", FailureReason: "TrainingError",
		CreationTime: timestamppb.New(created), FinishTime: timestamppb.New(created.Add(time.Minute)), LogLines: 12, OmittedLines: 3,
	}
}

// wholeRecordMessage also has what a list leaves out.
func wholeRecordMessage(kind string) *wire.Record {
	message := recordMessage(kind)
	spec := &structpb.Struct{Fields: map[string]*structpb.Value{"slotsPerWorker": structpb.NewNumberValue(2)}}
	message.Job = &structpb.Struct{Fields: map[string]*structpb.Value{"spec": structpb.NewStructValue(spec)}}
	message.Events = []*wire.RecordedEvent{{Type: "Warning", Reason: "BackOff", Message: "m", Time: timestamppb.New(created), Object: "Pod/p", Count: 2}}
	message.Curves = []*wire.Curve{{Name: "loss", Points: []*wire.CurvePoint{{Time: timestamppb.New(created), Step: new(int64(5)), Value: 2}}}}
	return message
}

// unary is a valid call.
type unary struct {
	make func(ctx context.Context, server *clients) (proto.Message, error)
	// wantAsked is the expected call of the service, wantRecorded the audit record.
	wantAsked    string
	wantRecorded auth.Record
	want         proto.Message
}

var unaries = map[string]unary{
	"CreateMPIJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.mpi.CreateMPIJob(ctx, &wire.CreateMPIJobRequest{Namespace: "team", Name: "pi", Spec: &wire.MPIJobSpec{}})
		},
		wantAsked:    `create MPIJob team/pi dryRun=false`,
		wantRecorded: auth.Record{Verb: "create", Kind: "MPIJob", Namespace: "team", Name: "pi"},
		want:         &wire.CreateMPIJobResponse{Name: "pi", Namespace: "team", Uid: "1-2-3", CreatedAt: timestamppb.New(created), Mpijob: mpiJobMessage("pi")},
	},
	"CreateMPIJob without a name": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.mpi.CreateMPIJob(ctx, &wire.CreateMPIJobRequest{Namespace: "team", Spec: &wire.MPIJobSpec{}})
		},
		wantAsked:    `create MPIJob team/ dryRun=false`,
		wantRecorded: auth.Record{Verb: "create", Kind: "MPIJob", Namespace: "team"},
		want:         &wire.CreateMPIJobResponse{Name: "mpijob-", Namespace: "team", Uid: "1-2-3", CreatedAt: timestamppb.New(created), Mpijob: mpiJobMessage("mpijob-")},
	},
	"CreateMPIJob that is only tried": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.mpi.CreateMPIJob(ctx, &wire.CreateMPIJobRequest{Namespace: "team", Name: "pi", Spec: &wire.MPIJobSpec{}, DryRun: true})
		},
		wantAsked:    `create MPIJob team/pi dryRun=true`,
		wantRecorded: auth.Record{Kind: "MPIJob", Namespace: "team", Name: "pi"},
		want:         &wire.CreateMPIJobResponse{Name: "pi", Namespace: "team", Uid: "1-2-3", CreatedAt: timestamppb.New(created), Mpijob: mpiJobMessage("pi")},
	},
	"GetMPIJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.mpi.GetMPIJob(ctx, &wire.GetMPIJobRequest{Namespace: "team", Name: "pi"})
		},
		wantAsked: `get MPIJob team/pi`,
		want:      &wire.GetMPIJobResponse{Mpijob: mpiJobMessage("pi")},
	},
	"ListMPIJobs": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.mpi.ListMPIJobs(ctx, &wire.ListMPIJobsRequest{Namespace: "team", LabelSelector: "a=b", Limit: 5, ContinueToken: "here", Status: "Running", NameContains: "p", Sort: "-name"})
		},
		wantAsked: `list MPIJob namespace="team" labels="a=b" status="Running" runtime="" name="p" sort="-name" limit=5 continue="here"`,
		want:      &wire.ListMPIJobsResponse{Items: []*wire.MPIJob{mpiJobMessage("pi")}, ContinueToken: "next", Total: 7, ResourceVersion: "9"},
	},
	"ListMPIJobs of all namespaces": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.mpi.ListMPIJobs(ctx, &wire.ListMPIJobsRequest{AllNamespaces: true})
		},
		wantAsked: `list MPIJob namespace="" labels="" status="" runtime="" name="" sort="" limit=0 continue=""`,
		want:      &wire.ListMPIJobsResponse{Items: []*wire.MPIJob{mpiJobMessage("pi")}, ContinueToken: "next", Total: 7, ResourceVersion: "9"},
	},
	"DeleteMPIJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.mpi.DeleteMPIJob(ctx, &wire.DeleteMPIJobRequest{Namespace: "team", Name: "pi", GracePeriodSeconds: new(int64(0))})
		},
		wantAsked:    `delete MPIJob team/pi grace=0 dryRun=false`,
		wantRecorded: auth.Record{Verb: "delete", Kind: "MPIJob", Namespace: "team", Name: "pi"},
		want:         &wire.DeleteMPIJobResponse{Message: "MPIJob pi deleted successfully"},
	},
	"DeleteMPIJob that is only tried": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.mpi.DeleteMPIJob(ctx, &wire.DeleteMPIJobRequest{Namespace: "team", Name: "pi", DryRun: true})
		},
		wantAsked:    `delete MPIJob team/pi grace=-1 dryRun=true`,
		wantRecorded: auth.Record{Kind: "MPIJob", Namespace: "team", Name: "pi"},
		want:         &wire.DeleteMPIJobResponse{Message: "MPIJob pi can be deleted; dry run, nothing was deleted"},
	},
	"GetMPIJobStatus": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.mpi.GetMPIJobStatus(ctx, &wire.GetMPIJobStatusRequest{Namespace: "team", Name: "pi"})
		},
		wantAsked: `get MPIJob team/pi`,
		want:      &wire.GetMPIJobStatusResponse{Status: &wire.MPIJobStatus{Phase: "Running"}},
	},
	"Suspend a MPIJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.Suspend(ctx, &wire.SuspendRequest{Kind: "MPIJob", Namespace: "team", Name: "pi"})
		},
		wantAsked:    `suspend MPIJob team/pi true`,
		wantRecorded: auth.Record{Verb: "patch", Kind: "MPIJob", Namespace: "team", Name: "pi"},
		want:         &wire.SuspendResponse{Job: mpiJobOf(mpiJobMessage("pi"))},
	},
	"Resume a MPIJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.Resume(ctx, &wire.ResumeRequest{Kind: "MPIJob", Namespace: "team", Name: "pi"})
		},
		wantAsked:    `suspend MPIJob team/pi false`,
		wantRecorded: auth.Record{Verb: "patch", Kind: "MPIJob", Namespace: "team", Name: "pi"},
		want:         &wire.ResumeResponse{Job: mpiJobOf(mpiJobMessage("pi"))},
	},
	"Restart a MPIJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.Restart(ctx, &wire.RestartRequest{Kind: "MPIJob", Namespace: "team", Name: "pi"})
		},
		wantAsked:    `restart MPIJob team/pi`,
		wantRecorded: auth.Record{Verb: "create", Kind: "MPIJob", Namespace: "team", Name: "pi"},
		want:         &wire.RestartResponse{Job: mpiJobOf(mpiJobMessage("pi-retry-1"))},
	},
	"Preflight of a MPIJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.Preflight(ctx, &wire.PreflightRequest{Namespace: "team", Job: mpiJobOf(&wire.MPIJob{Name: "pi"})})
		},
		wantAsked: `preflight MPIJob team/pi`,
		want:      &wire.PreflightResponse{Namespace: "team", Passed: 1, Total: 2, Checks: []*wire.Outcome{{Check: "Quota", Result: "fail", Findings: []*wire.Finding{{Rank: "note"}}}}},
	},
	"CreateTrainJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.train.CreateTrainJob(ctx, &wire.CreateTrainJobRequest{Namespace: "team", Name: "pi", Spec: &wire.TrainJobSpec{}})
		},
		wantAsked:    `create TrainJob team/pi dryRun=false`,
		wantRecorded: auth.Record{Verb: "create", Kind: "TrainJob", Namespace: "team", Name: "pi"},
		want:         &wire.CreateTrainJobResponse{Name: "pi", Namespace: "team", Uid: "1-2-3", CreatedAt: timestamppb.New(created), Trainjob: trainJobMessage("pi")},
	},
	"CreateTrainJob without a name": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.train.CreateTrainJob(ctx, &wire.CreateTrainJobRequest{Namespace: "team", Spec: &wire.TrainJobSpec{}})
		},
		wantAsked:    `create TrainJob team/ dryRun=false`,
		wantRecorded: auth.Record{Verb: "create", Kind: "TrainJob", Namespace: "team"},
		want:         &wire.CreateTrainJobResponse{Name: "trainjob-", Namespace: "team", Uid: "1-2-3", CreatedAt: timestamppb.New(created), Trainjob: trainJobMessage("trainjob-")},
	},
	"CreateTrainJob that is only tried": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.train.CreateTrainJob(ctx, &wire.CreateTrainJobRequest{Namespace: "team", Name: "pi", Spec: &wire.TrainJobSpec{}, DryRun: true})
		},
		wantAsked:    `create TrainJob team/pi dryRun=true`,
		wantRecorded: auth.Record{Kind: "TrainJob", Namespace: "team", Name: "pi"},
		want:         &wire.CreateTrainJobResponse{Name: "pi", Namespace: "team", Uid: "1-2-3", CreatedAt: timestamppb.New(created), Trainjob: trainJobMessage("pi")},
	},
	"GetTrainJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.train.GetTrainJob(ctx, &wire.GetTrainJobRequest{Namespace: "team", Name: "pi"})
		},
		wantAsked: `get TrainJob team/pi`,
		want:      &wire.GetTrainJobResponse{Trainjob: trainJobMessage("pi")},
	},
	"ListTrainJobs": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.train.ListTrainJobs(ctx, &wire.ListTrainJobsRequest{Namespace: "team", LabelSelector: "a=b", Limit: 5, ContinueToken: "here", Status: "Running", NameContains: "p", Sort: "-name", Runtime: "mpi"})
		},
		wantAsked: `list TrainJob namespace="team" labels="a=b" status="Running" runtime="mpi" name="p" sort="-name" limit=5 continue="here"`,
		want:      &wire.ListTrainJobsResponse{Items: []*wire.TrainJob{trainJobMessage("pi")}, ContinueToken: "next", Total: 7, ResourceVersion: "9"},
	},
	"ListTrainJobs of all namespaces": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.train.ListTrainJobs(ctx, &wire.ListTrainJobsRequest{AllNamespaces: true})
		},
		wantAsked: `list TrainJob namespace="" labels="" status="" runtime="" name="" sort="" limit=0 continue=""`,
		want:      &wire.ListTrainJobsResponse{Items: []*wire.TrainJob{trainJobMessage("pi")}, ContinueToken: "next", Total: 7, ResourceVersion: "9"},
	},
	"DeleteTrainJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.train.DeleteTrainJob(ctx, &wire.DeleteTrainJobRequest{Namespace: "team", Name: "pi", GracePeriodSeconds: new(int64(0))})
		},
		wantAsked:    `delete TrainJob team/pi grace=0 dryRun=false`,
		wantRecorded: auth.Record{Verb: "delete", Kind: "TrainJob", Namespace: "team", Name: "pi"},
		want:         &wire.DeleteTrainJobResponse{Message: "TrainJob pi deleted successfully"},
	},
	"DeleteTrainJob that is only tried": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.train.DeleteTrainJob(ctx, &wire.DeleteTrainJobRequest{Namespace: "team", Name: "pi", DryRun: true})
		},
		wantAsked:    `delete TrainJob team/pi grace=-1 dryRun=true`,
		wantRecorded: auth.Record{Kind: "TrainJob", Namespace: "team", Name: "pi"},
		want:         &wire.DeleteTrainJobResponse{Message: "TrainJob pi can be deleted; dry run, nothing was deleted"},
	},
	"GetTrainJobStatus": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.train.GetTrainJobStatus(ctx, &wire.GetTrainJobStatusRequest{Namespace: "team", Name: "pi"})
		},
		wantAsked: `get TrainJob team/pi`,
		want:      &wire.GetTrainJobStatusResponse{Status: &wire.TrainJobStatus{Phase: "Running"}},
	},
	"Suspend a TrainJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.Suspend(ctx, &wire.SuspendRequest{Kind: "TrainJob", Namespace: "team", Name: "pi"})
		},
		wantAsked:    `suspend TrainJob team/pi true`,
		wantRecorded: auth.Record{Verb: "patch", Kind: "TrainJob", Namespace: "team", Name: "pi"},
		want:         &wire.SuspendResponse{Job: trainJobOf(trainJobMessage("pi"))},
	},
	"Resume a TrainJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.Resume(ctx, &wire.ResumeRequest{Kind: "TrainJob", Namespace: "team", Name: "pi"})
		},
		wantAsked:    `suspend TrainJob team/pi false`,
		wantRecorded: auth.Record{Verb: "patch", Kind: "TrainJob", Namespace: "team", Name: "pi"},
		want:         &wire.ResumeResponse{Job: trainJobOf(trainJobMessage("pi"))},
	},
	"Restart a TrainJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.Restart(ctx, &wire.RestartRequest{Kind: "TrainJob", Namespace: "team", Name: "pi"})
		},
		wantAsked:    `restart TrainJob team/pi`,
		wantRecorded: auth.Record{Verb: "create", Kind: "TrainJob", Namespace: "team", Name: "pi"},
		want:         &wire.RestartResponse{Job: trainJobOf(trainJobMessage("pi-retry-1"))},
	},
	"Preflight of a TrainJob": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.Preflight(ctx, &wire.PreflightRequest{Namespace: "team", Job: trainJobOf(&wire.TrainJob{Name: "pi"})})
		},
		wantAsked: `preflight TrainJob team/pi`,
		want:      &wire.PreflightResponse{Namespace: "team", Passed: 1, Total: 2, Checks: []*wire.Outcome{{Check: "Quota", Result: "fail", Findings: []*wire.Finding{{Rank: "note"}}}}},
	},
	"ListEvents": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.ListEvents(ctx, &wire.ListEventsRequest{Kind: "MPIJob", Namespace: "team", Name: "pi"})
		},
		wantAsked: `events MPIJob team/pi`,
		want:      &wire.ListEventsResponse{Events: []*wire.Event{{Type: "Warning", Reason: "BackOff", Message: "m", Timestamp: timestamppb.New(created), Source: "kubelet", Object: "Pod/p", Count: 2}}},
	},
	"GetUsage": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.GetUsage(ctx, &wire.GetUsageRequest{Kind: "MPIJob", Namespace: "team", Name: "pi"})
		},
		wantAsked: `usage MPIJob team/pi 1h0m0s`,
		want:      &wire.GetUsageResponse{Source: "metrics-api", Workers: []*wire.PodUsage{{PodName: "w", Index: new(int32(0)), Cpu: []*wire.Sample{{Timestamp: timestamppb.New(created), Value: 1.5}}}}},
	},
	"GetUsage of a day": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.GetUsage(ctx, &wire.GetUsageRequest{Kind: "MPIJob", Namespace: "team", Name: "pi", Window: durationpb.New(24 * time.Hour)})
		},
		wantAsked: `usage MPIJob team/pi 24h0m0s`,
		want:      &wire.GetUsageResponse{Source: "metrics-api", Workers: []*wire.PodUsage{{PodName: "w", Index: new(int32(0)), Cpu: []*wire.Sample{{Timestamp: timestamppb.New(created), Value: 1.5}}}}},
	},
	"Diagnose": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.Diagnose(ctx, &wire.DiagnoseRequest{Kind: "TrainJob", Namespace: "team", Name: "pi"})
		},
		wantAsked: `diagnose TrainJob team/pi`,
		want: &wire.DiagnoseResponse{
			Kind: "TrainJob", State: "Pending", Hindered: true,
			Conditions: []*wire.Condition{{Type: "Running", Status: "False", LastTransitionTime: timestamppb.New(created), ObservedGeneration: 2}},
			Findings:   []*wire.Finding{{Rank: "certain", Check: "Quota", Title: "t", Cause: "c", Object: "o", Fix: "f", Documentation: "d"}},
		},
	},
	"Preflight of a namespace": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.Preflight(ctx, &wire.PreflightRequest{Namespace: "team"})
		},
		wantAsked: `preflight MPIJob team/nothing`,
		want:      &wire.PreflightResponse{Namespace: "team", Passed: 1, Total: 2, Checks: []*wire.Outcome{{Check: "Quota", Result: "fail", Findings: []*wire.Finding{{Rank: "note"}}}}},
	},
	"GetQuota": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.GetQuota(ctx, &wire.GetQuotaRequest{Namespace: "team"})
		},
		wantAsked: `quota team`,
		want:      &wire.GetQuotaResponse{Namespace: "team", ActiveJobs: 3},
	},
	"ListRuntimes": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.ListRuntimes(ctx, &wire.ListRuntimesRequest{Framework: "MPI"})
		},
		wantAsked: `runtimes "" "MPI"`,
		want:      &wire.ListRuntimesResponse{Items: []*wire.Runtime{{Name: "r", Kind: "ClusterTrainingRuntime", Framework: "MPI", MpiImplementation: "OpenMPI", NumNodes: 2}}},
	},
	"GetRuntime": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.jobs.GetRuntime(ctx, &wire.GetRuntimeRequest{Namespace: "team", Name: "r"})
		},
		wantAsked: `runtime team/r`,
		want:      &wire.GetRuntimeResponse{Runtime: &wire.Runtime{Name: "r", Namespace: "team", Object: runtimeObject}},
	},
	"ListRecords": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.history.ListRecords(ctx, &wire.ListRecordsRequest{Kind: "MPIJob", Namespace: "team"})
		},
		wantAsked: `history MPIJob team limit=100`,
		want:      &wire.ListRecordsResponse{Items: []*wire.Record{recordMessage("MPIJob")}, Total: 5},
	},
	"GetRecord": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.history.GetRecord(ctx, &wire.GetRecordRequest{Kind: "TrainJob", Namespace: "team", Name: "pi"})
		},
		wantAsked: `past TrainJob team/pi`,
		want:      &wire.GetRecordResponse{Record: wholeRecordMessage("TrainJob")},
	},
	"DeleteRecord": {
		make: func(ctx context.Context, server *clients) (proto.Message, error) {
			return server.history.DeleteRecord(ctx, &wire.DeleteRecordRequest{Kind: "MPIJob", Namespace: "team", Name: "pi"})
		},
		wantAsked:    `delete past MPIJob team/pi`,
		wantRecorded: auth.Record{Verb: "delete", Kind: "MPIJob", Namespace: "team", Name: "pi"},
		want:         &wire.DeleteRecordResponse{},
	},
}

// runtimeObject is a runtime in Kubernetes' JSON form.
var runtimeObject = &structpb.Struct{Fields: map[string]*structpb.Value{
	"metadata": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"name": structpb.NewStringValue("r")}}),
	"spec": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"mlPolicy": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"mpiImplementation": structpb.NewStringValue("OpenMPI")}}),
		"template": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"spec": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"replicatedJobs": structpb.NewNullValue()}}),
		}}),
	}}),
}}

func TestMethods(t *testing.T) {
	for name, test := range unaries {
		t.Run(name, func(t *testing.T) {
			script := &scripted{}
			server := serve(t, script)
			got, err := test.make(t.Context(), server)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{test.wantAsked}, script.asked); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]*auth.Record{&test.wantRecorded}, server.records); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMethodErrors(t *testing.T) {
	for name, test := range unaries {
		t.Run(name, func(t *testing.T) {
			_, err := test.make(t.Context(), serve(t, &scripted{err: apierror.New(404, "NotFound", "it is not there", "Look elsewhere")}))
			told := status.Convert(err)
			if told.Code() != codes.NotFound || told.Message() != "it is not there" || len(told.Details()) != 2 {
				t.Errorf("got %v with the details %v", err, told.Details())
			}
		})
	}
}

func TestEveryMethodIsTried(t *testing.T) {
	tried := map[string]bool{}
	for name := range unaries {
		tried[strings.Fields(name)[0]] = true
	}
	for name := range streams {
		tried[name] = true
	}
	for _, method := range everyMethod() {
		if !tried[string(method.Name())] {
			t.Errorf("%s is not tried", method.FullName())
		}
	}
}
