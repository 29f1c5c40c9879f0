// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// sent calls any method and returns only the error.
func sent(ctx context.Context, server *clients, method protoreflect.MethodDescriptor, request any, options ...grpc.CallOption) error {
	path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	stream, err := server.connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path, options...)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(request); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(&structpb.Struct{})
}

// everyMethod returns all methods of the job services.
func everyMethod() (found []protoreflect.MethodDescriptor) {
	for _, file := range []protoreflect.FileDescriptor{wire.File_training_mpijob_proto, wire.File_training_trainjob_proto, wire.File_training_jobs_proto, wire.File_training_history_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for i := range methods.Len() {
				found = append(found, methods.Get(i))
			}
		}
	}
	return found
}

func TestRequestsWithNothingAreRefused(t *testing.T) {
	want := map[string]string{"ListRuntimes": "", "GetRuntime": "name is required"}
	script := &scripted{}
	server := serve(t, script)
	for _, method := range everyMethod() {
		t.Run(string(method.Name()), func(t *testing.T) {
			wanted, particular := want[string(method.Name())]
			if !particular {
				wanted = "namespace is required"
			}
			if method.Input().Fields().ByName("kind") != nil {
				wanted = "kind is required"
			}
			err := sent(t.Context(), server, method, &structpb.Struct{})
			if told := status.Convert(err); wanted != "" && (told.Code() != codes.InvalidArgument || told.Message() != wanted) {
				t.Errorf("got %v, want %q", err, wanted)
			}
		})
	}
	if len(script.asked) != 1 {
		t.Errorf("the service was asked %q, want the runtimes alone", script.asked)
	}
}

// bytesCodec sends raw bytes.
type bytesCodec struct{}

func (bytesCodec) Marshal(message any) ([]byte, error) { return message.([]byte), nil }
func (bytesCodec) Unmarshal([]byte, any) error         { return nil }
func (bytesCodec) Name() string                        { return "proto" }

var _ encoding.Codec = bytesCodec{}

func TestUndecodableMessages(t *testing.T) {
	script := &scripted{}
	server := serve(t, script)
	for name, message := range map[string][]byte{
		"no protobuf":                 []byte("GET / HTTP/1.1"),
		"a text that is not of UTF-8": {0x0a, 0x02, 0xff, 0xfe},
		"a length that is too long":   {0x0a, 0x7f, 'a'},
	} {
		for _, method := range everyMethod() {
			// The first field of a preflight request is a text as well.
			t.Run(name+" for "+string(method.Name()), func(t *testing.T) {
				err := sent(t.Context(), server, method, message, grpc.ForceCodec(bytesCodec{}))
				if told := status.Convert(err); told.Code() != codes.InvalidArgument || !strings.HasPrefix(told.Message(), "The message cannot be decoded: ") {
					t.Errorf("got %v", err)
				}
			})
		}
	}
	if len(script.asked) > 0 {
		t.Errorf("the service was asked %q", script.asked)
	}
}

func TestRefusals(t *testing.T) {
	type refusal struct {
		make func(context.Context, *clients) error
		want string
	}
	create := func(request *wire.CreateMPIJobRequest) func(context.Context, *clients) error {
		return func(ctx context.Context, server *clients) error {
			_, err := server.mpi.CreateMPIJob(ctx, request)
			return err
		}
	}
	get := func(namespace, name string) func(context.Context, *clients) error {
		return func(ctx context.Context, server *clients) error {
			_, err := server.mpi.GetMPIJob(ctx, &wire.GetMPIJobRequest{Namespace: namespace, Name: name})
			return err
		}
	}
	list := func(request *wire.ListMPIJobsRequest) func(context.Context, *clients) error {
		return func(ctx context.Context, server *clients) error {
			_, err := server.mpi.ListMPIJobs(ctx, request)
			return err
		}
	}
	logs := func(request *wire.GetMPIJobLogsRequest) func(context.Context, *clients) error {
		return func(ctx context.Context, server *clients) error {
			request.Namespace, request.Name = "team", "pi"
			_, err := received(server.mpi.GetMPIJobLogs(ctx, request))
			return err
		}
	}
	usage := func(window *durationpb.Duration) func(context.Context, *clients) error {
		return func(ctx context.Context, server *clients) error {
			_, err := server.jobs.GetUsage(ctx, &wire.GetUsageRequest{Kind: "MPIJob", Namespace: "team", Name: "pi", Window: window})
			return err
		}
	}
	for name, test := range map[string]refusal{
		"a job without a namespace": {create(&wire.CreateMPIJobRequest{Spec: &wire.MPIJobSpec{}}), "namespace is required"},
		"a job without a spec":      {create(&wire.CreateMPIJobRequest{Namespace: "team"}), "spec is required"},
		"a name that is a path":     {create(&wire.CreateMPIJobRequest{Namespace: "team", Name: "../x", Spec: &wire.MPIJobSpec{}}), `name: "../x" is not a valid name: a lowercase RFC 1123 subdomain`},
		"a field that is not known": {create(&wire.CreateMPIJobRequest{Namespace: "team", Spec: &wire.MPIJobSpec{OtherFields: &structpb.Struct{Fields: map[string]*structpb.Value{"slots": structpb.NewNumberValue(1)}}}}), `unknown field "spec.slots"`},
		"a quantity of 99,999 digits": {create(&wire.CreateMPIJobRequest{Namespace: "team", Spec: &wire.MPIJobSpec{RunPolicy: &wire.RunPolicy{SchedulingPolicy: &wire.SchedulingPolicy{MinResources: map[string]string{"cpu": "1E99999"}}}}}),
			"spec.runPolicy.schedulingPolicy.minResources.cpu: 1E99999 is too large or too small for a quantity"},
		"such a quantity in other fields": {func(ctx context.Context, server *clients) error {
			limits := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"size": structpb.NewStringValue("1E99999")}})
			_, err := server.train.CreateTrainJob(ctx, &wire.CreateTrainJobRequest{Namespace: "team", Spec: &wire.TrainJobSpec{OtherFields: &structpb.Struct{Fields: map[string]*structpb.Value{"storage": limits}}}})
			return err
		}, "spec.storage.size: 1E99999 is too large or too small for a quantity"},
		"no name":                     {get("team", ""), "name is required"},
		"no namespace":                {get("", "pi"), "namespace is required"},
		"a namespace that is a path":  {get("team/../other", "pi"), `namespace: "team/../other" is not a valid name`},
		"a job that is a path":        {get("team", "pi/status"), `name: "pi/status" is not a valid name`},
		"a list of nothing":           {list(&wire.ListMPIJobsRequest{}), "namespace is required"},
		"a list of one and of all":    {list(&wire.ListMPIJobsRequest{Namespace: "team", AllNamespaces: true}), "namespace and all_namespaces cannot both be set"},
		"a selector that is none":     {list(&wire.ListMPIJobsRequest{Namespace: "team", LabelSelector: "a=b=c"}), "label_selector: "},
		"a limit below nothing":       {list(&wire.ListMPIJobsRequest{Namespace: "team", Limit: -1}), "limit: must be from 1 to 1000"},
		"a state that there is not":   {list(&wire.ListMPIJobsRequest{Namespace: "team", Status: "Runing"}), `status: "Runing" is not one of Submitted, Queued, Suspended, Pending, Restarting, Running, Succeeded, Failed, Deleting`},
		"logs of other pods":          {logs(&wire.GetMPIJobLogsRequest{PodType: "initializer"}), "pod_type must be 'launcher' or 'worker'"},
		"logs of a launcher's number": {logs(&wire.GetMPIJobLogsRequest{PodType: "launcher", PodIndex: new(int32(0))}), "pod_index cannot be combined with the launcher: only workers have an index"},
		"logs of a worker before all": {logs(&wire.GetMPIJobLogsRequest{PodIndex: new(int32(-1))}), "pod_index must not be negative"},
		"less than no lines":          {logs(&wire.GetMPIJobLogsRequest{TailLines: new(int64(-2))}), "tail_lines must be -1 (all lines) or greater"},
		"to follow what has ended":    {logs(&wire.GetMPIJobLogsRequest{Follow: true, Previous: true}), "cannot be combined with follow: previous containers have finished"},
		"logs since no time":          {logs(&wire.GetMPIJobLogsRequest{SinceTime: &timestamppb.Timestamp{Seconds: math.MaxInt64}}), "since_time: is not a valid time"},
		"usage of nothing":            {usage(durationpb.New(0)), "window: must be greater than 0 and at most seven days"},
		"usage of a year":             {usage(durationpb.New(365 * 24 * time.Hour)), "window: must be greater than 0 and at most seven days"},
		"usage of no time":            {usage(&durationpb.Duration{Seconds: 1, Nanos: -1}), "window: must be greater than 0 and at most seven days"},
		"to delete before now": {func(ctx context.Context, server *clients) error {
			_, err := server.mpi.DeleteMPIJob(ctx, &wire.DeleteMPIJobRequest{Namespace: "team", Name: "pi", GracePeriodSeconds: new(int64(-1))})
			return err
		}, "grace_period_seconds must not be negative"},
		"a kind that there is not": {func(ctx context.Context, server *clients) error {
			_, err := server.jobs.Suspend(ctx, &wire.SuspendRequest{Kind: "Job", Namespace: "team", Name: "pi"})
			return err
		}, "kind must be 'TrainJob' or 'MPIJob'"},
		"a job of no kind": {func(ctx context.Context, server *clients) error {
			_, err := server.jobs.Preflight(ctx, &wire.PreflightRequest{Namespace: "team", Job: &wire.Job{}})
			return err
		}, "job must have an mpijob or a trainjob"},
	} {
		t.Run(name, func(t *testing.T) {
			script := &scripted{}
			told := status.Convert(test.make(t.Context(), serve(t, script)))
			if told.Code() != codes.InvalidArgument || !strings.Contains(told.Message(), test.want) {
				t.Errorf("got %v, want InvalidArgument: %s", told.Err(), test.want)
			}
			if len(script.asked) > 0 {
				t.Errorf("the service was asked %q", script.asked)
			}
		})
	}
}

func TestCreatedJobIsTheRequests(t *testing.T) {
	script := &scripted{}
	_, err := serve(t, script).mpi.CreateMPIJob(t.Context(), &wire.CreateMPIJobRequest{
		Namespace: "team", Name: "pi", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
		Spec: &wire.MPIJobSpec{
			SlotsPerWorker: new(int32(2)),
			MpiReplicaSpecs: map[string]*wire.ReplicaSpec{"Worker": {Replicas: new(int32(2)), Template: &wire.PodTemplateSpec{Spec: &wire.PodSpec{
				Containers: []*wire.Container{{Name: "pi", Image: "pi", Resources: &wire.ResourceRequirements{Limits: map[string]string{"cpu": "500m"}}}},
				OtherFields: &structpb.Struct{Fields: map[string]*structpb.Value{
					"nodeSelector": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"gpu": structpb.NewStringValue("h100")}}),
				}},
			}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var want v2beta1.MPIJob
	manifest := `{"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"namespace": "team", "name": "pi", "labels": {"a": "b"}, "annotations": {"c": "d"}},
		"spec": {"slotsPerWorker": 2, "mpiReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {
			"nodeSelector": {"gpu": "h100"}, "containers": [{"name": "pi", "image": "pi", "resources": {"limits": {"cpu": "500m"}}}]
		}}}}}}`
	if err := json.Unmarshal([]byte(manifest), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, script.created); diff != "" {
		t.Error(diff)
	}
}

// FuzzCreateMPIJob: any request becomes a job, or is an error of the client.
func FuzzCreateMPIJob(f *testing.F) {
	for _, request := range []*wire.CreateMPIJobRequest{
		{}, {Namespace: "team", Spec: &wire.MPIJobSpec{}}, {Namespace: "team", Name: "pi", Spec: &wire.MPIJobSpec{RunPolicy: &wire.RunPolicy{Suspend: new(true)}}},
	} {
		encoded, err := proto.Marshal(request)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	jobs := &mpiJobs{shared: &shared{service: &scripted{}, now: time.Now}}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		request := &wire.CreateMPIJobRequest{}
		if proto.Unmarshal(encoded, request) != nil {
			return
		}
		if _, err := jobs.CreateMPIJob(t.Context(), request); err != nil && apierror.From(err).Code != 400 {
			t.Fatal(err)
		}
	})
}
