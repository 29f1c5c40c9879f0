// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/testing/random"
)

// carried converts an object to a message, over the wire, and back.
func carried[Object any](t testing.TB, object *Object, empty proto.Message) *Object {
	t.Helper()
	sent := empty.ProtoReflect().New().Interface()
	if err := ToMessage(object, sent); err != nil {
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	received := empty.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(encoded, received); err != nil {
		t.Fatal(err)
	}
	arrived := new(Object)
	if err := FromMessage(received, arrived); err != nil {
		t.Fatal(err)
	}
	return arrived
}

func asJSON(t testing.TB, object any) string {
	t.Helper()
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkCarried compares JSON, which distinguishes missing from empty values.
func checkCarried[Object any](t *testing.T, filled *Object, empty proto.Message) {
	t.Helper()
	// Go values that JSON does not have, such as a pointer to nil, are not Kubernetes
	// objects.
	object := new(Object)
	if err := json.Unmarshal([]byte(asJSON(t, filled)), object); err != nil {
		t.Fatal(err)
	}
	before := asJSON(t, object)
	arrived := carried(t, object, empty)
	if diff := cmp.Diff(before, asJSON(t, arrived)); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(before, asJSON(t, object)); diff != "" {
		t.Fatalf("the object itself was changed: %s", diff)
	}
}

// rounds are enough to set and omit every field many times.
const rounds = 500

func TestJobsAreLossless(t *testing.T) {
	for seed := range int64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var mpiJob v2beta1.MPIJob
			random.Fill(seed, &mpiJob)
			checkCarried(t, &mpiJob, &wire.MPIJob{})
			checkCarried(t, random.MPIJob(seed), &wire.MPIJob{})

			var trainJob v2alpha1.TrainJob
			random.Fill(seed, &trainJob)
			checkCarried(t, &trainJob, &wire.TrainJob{})
			sensible, _ := random.TrainJob(seed)
			checkCarried(t, sensible, &wire.TrainJob{})
		})
	}
}

func TestOtherObjectsAreLossless(t *testing.T) {
	for seed := range int64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var row jobview.Row
			random.Fill(seed, &row)
			row.WorkerStatuses = append(row.WorkerStatuses, jobview.WorkerStatus{Index: 1, Status: "Running"})
			checkCarried(t, &row, &wire.JobRow{})

			var quota jobservice.Quota
			random.Fill(seed, &quota)
			quota.ActiveJobs = int(int32(quota.ActiveJobs))
			quota.Quotas = []jobservice.QuotaUsage{{Name: "a", Hard: corev1.ResourceList{}, Used: corev1.ResourceList{}}}
			random.Fill(seed, &quota.Quotas[0].Hard)
			quota.Quotas[0].Used = quota.Quotas[0].Hard
			if len(quota.Quotas[0].Hard) > 0 {
				checkCarried(t, &quota, &wire.GetQuotaResponse{})
			}
		})
	}
}

func TestFailedProcessIsCarried(t *testing.T) {
	status := &v2beta1.MPIJobStatus{Progress: training.Progress{FailedProcess: &training.FailedProcess{
		Rank: new(int32(0)), Host: "train-worker-0", ExitCode: new(int32(1)), Error: "ERROR: no data", LastLines: []string{"epoch 1", "ERROR: no data"},
	}}}
	checkCarried(t, status, &wire.MPIJobStatus{})
	message := &wire.MPIJobStatus{}
	if err := ToMessage(status, message); err != nil {
		t.Fatal(err)
	}
	want := &wire.FailedProcess{Rank: new(int32(0)), Host: "train-worker-0", ExitCode: new(int32(1)), Error: "ERROR: no data", LastLines: []string{"epoch 1", "ERROR: no data"}}
	if !proto.Equal(want, message.GetFailedProcess()) {
		t.Errorf("got %v, want %v", message.GetFailedProcess(), want)
	}
}

func TestUsageIsCarried(t *testing.T) {
	dice := rand.New(rand.NewSource(1))
	samples := []usage.Sample{{Value: dice.Float64()}, {Value: 3}}
	pod := usage.Pod{PodName: "p", Index: new(int32(0)), CPU: samples, Memory: samples, GPU: samples, GPUMemory: samples, NetworkTransmit: samples, NetworkReceive: samples}
	checkCarried(t, &usage.Report{Source: "prometheus", Message: "m", Launcher: &pod, Workers: []usage.Pod{pod, pod}}, &wire.GetUsageResponse{})
}

func TestUnmappedFieldsAreInOtherFields(t *testing.T) {
	var mpiJob v2beta1.MPIJob
	manifest := `{
		"metadata": {"name": "pi", "finalizers": ["a/b"], "labels": {"team": "vision"}},
		"spec": {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {
			"nodeSelector": {"gpu": "h100"}, "terminationGracePeriodSeconds": 9223372036854775807,
			"containers": [{"name": "pi", "securityContext": {"runAsUser": 9007199254740991, "runAsGroup": 9007199254740992}, "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}],
			"volumes": [{"name": "code", "configMap": {"name": "code", "defaultMode": 420}}, {"name": "data", "nfs": {"server": "s", "path": "/"}}, {"name": "scratch", "emptyDir": {}}]
		}}}}, "runPolicy": {"schedulingPolicy": {"minResources": {}}}}
	}`
	if err := json.Unmarshal([]byte(manifest), &mpiJob); err != nil {
		t.Fatal(err)
	}
	var message wire.MPIJob
	if err := ToMessage(&mpiJob, &message); err != nil {
		t.Fatal(err)
	}
	spec := message.Spec.MpiReplicaSpecs["Launcher"].Template.Spec
	container := spec.Containers[0]
	got := map[string]any{
		"labels":                  message.Labels,
		"metadata":                message.OtherFields.AsMap(),
		"pod":                     spec.OtherFields.AsMap(),
		"container":               container.OtherFields.AsMap(),
		"environment":             container.Env[1].OtherFields.AsMap(),
		"config map":              spec.Volumes[0].VolumeSource.GetConfigMap().Name,
		"mode of config map":      spec.Volumes[0].VolumeSource.GetConfigMap().OtherFields.AsMap(),
		"nfs":                     spec.Volumes[1].VolumeSource.OtherFields.AsMap(),
		"an empty directory":      spec.Volumes[2].VolumeSource.GetEmptyDir() != nil,
		"what says nothing":       spec.SecurityContext != nil,
		"an empty map is no none": message.Spec.RunPolicy.SchedulingPolicy.OtherFields.AsMap(),
	}
	want := map[string]any{
		"labels":                  map[string]string{"team": "vision"},
		"metadata":                map[string]any{"metadata": map[string]any{"finalizers": []any{"a/b"}}},
		"pod":                     map[string]any{"nodeSelector": map[string]any{"gpu": "h100"}, "terminationGracePeriodSeconds": map[string]any{"@int64": "9223372036854775807"}},
		"container":               map[string]any{"securityContext": map[string]any{"runAsUser": 9007199254740991.0, "runAsGroup": map[string]any{"@int64": "9007199254740992"}}},
		"environment":             map[string]any{"valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "status.podIP"}}},
		"config map":              "code",
		"mode of config map":      map[string]any{"defaultMode": 420.0},
		"nfs":                     map[string]any{"nfs": map[string]any{"server": "s", "path": "/"}},
		"an empty directory":      true,
		"what says nothing":       false,
		"an empty map is no none": map[string]any{"minResources": map[string]any{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	checkCarried(t, &mpiJob, &wire.MPIJob{})
}

func others(t *testing.T, content map[string]any) *structpb.Struct {
	t.Helper()
	made, err := structpb.NewStruct(content)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestMessagesThatAreRefused(t *testing.T) {
	unknown := &wire.MPIJobSpec{}
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 1))
	for name, test := range map[string]struct {
		message           *wire.MPIJob
		wantField, wantIn string
	}{
		"a field that is said twice": {
			message:   &wire.MPIJob{Spec: &wire.MPIJobSpec{SlotsPerWorker: new(int32(1)), OtherFields: others(t, map[string]any{"slotsPerWorker": 1})}},
			wantField: "spec.slotsPerWorker", wantIn: "set twice: by the field slots_per_worker",
		},
		"a field of the metadata that is said twice": {
			message:   &wire.MPIJob{Name: "a", OtherFields: others(t, map[string]any{"metadata": map[string]any{"name": "b"}})},
			wantField: "metadata.name", wantIn: "set twice",
		},
		"the name of a volume that is said twice": {
			message: &wire.MPIJob{Spec: &wire.MPIJobSpec{MpiReplicaSpecs: map[string]*wire.ReplicaSpec{"Worker": {Template: &wire.PodTemplateSpec{Spec: &wire.PodSpec{Volumes: []*wire.Volume{
				{Name: "a", VolumeSource: &wire.VolumeSource{OtherFields: others(t, map[string]any{"name": "b"})}},
			}}}}}}},
			wantField: "spec.mpiReplicaSpecs.Worker.template.spec.volumes[0].name", wantIn: "set twice",
		},
		"metadata that is no object": {
			message:   &wire.MPIJob{Name: "a", OtherFields: others(t, map[string]any{"metadata": "a"})},
			wantField: "metadata", wantIn: "must be an object",
		},
		"a number that is not exact": {
			message:   &wire.MPIJob{Spec: &wire.MPIJobSpec{OtherFields: others(t, map[string]any{"a": []any{1, math.Pow(2, 60)}})}},
			wantField: "spec.a[1]", wantIn: `the number 1152921504606846976 is too large to be exact in other_fields; write {"@int64": "1152921504606846976"}`,
		},
		"the first number that is not exact": {
			message:   &wire.MPIJob{Spec: &wire.MPIJobSpec{OtherFields: others(t, map[string]any{"a": -9007199254740992})}},
			wantField: "spec.a", wantIn: "the number -9007199254740992 is too large",
		},
		"no number": {
			message:   &wire.MPIJob{Spec: &wire.MPIJobSpec{OtherFields: others(t, map[string]any{"a": math.Inf(1)})}},
			wantField: "spec.a", wantIn: "not a number that Kubernetes accepts",
		},
		"a large number that is none": {
			message:   &wire.MPIJob{Spec: &wire.MPIJobSpec{OtherFields: others(t, map[string]any{"a": map[string]any{"@int64": "many"}})}},
			wantField: "spec.a", wantIn: `@int64 "many" is not a 64-bit integer`,
		},
		"no time": {
			message:   &wire.MPIJob{CreatedAt: &timestamppb.Timestamp{Seconds: math.MaxInt64}},
			wantField: "metadata.creationTimestamp", wantIn: "is not a valid time",
		},
		"a field that no MPIJob has": {
			message:   &wire.MPIJob{Spec: &wire.MPIJobSpec{OtherFields: others(t, map[string]any{"slots": 1})}},
			wantField: "spec.slots", wantIn: `unknown field "spec.slots"`,
		},
		"a value of the wrong type": {
			message:   &wire.MPIJob{Spec: &wire.MPIJobSpec{OtherFields: others(t, map[string]any{"slotsPerWorker": "two"})}},
			wantField: "spec.slotsPerWorker", wantIn: "has the wrong type: string",
		},
		"no quantity": {
			message: &wire.MPIJob{Spec: &wire.MPIJobSpec{MpiReplicaSpecs: map[string]*wire.ReplicaSpec{"Worker": {Template: &wire.PodTemplateSpec{Spec: &wire.PodSpec{Containers: []*wire.Container{
				{Resources: &wire.ResourceRequirements{Limits: map[string]string{"cpu": "many"}}},
			}}}}}}},
			wantField: "other_fields", wantIn: "quantities must match the regular expression",
		},
		"a field number that is not known": {message: &wire.MPIJob{Spec: unknown}, wantField: "spec", wantIn: "MPIJobSpec has field number 77"},
	} {
		t.Run(name, func(t *testing.T) {
			err := FromMessage(test.message, &v2beta1.MPIJob{})
			told := apierror.From(err)
			if err == nil || told.Code != http.StatusBadRequest || !strings.Contains(told.Message, test.wantIn) {
				t.Fatalf("got %v, want code 400 and %q", err, test.wantIn)
			}
			if len(told.Details) != 1 || told.Details[0].Field != test.wantField {
				t.Errorf("got the details %v, want one of %q", told.Details, test.wantField)
			}
		})
	}
}

// A client may also set fields in other_fields that have their own field.
func TestOtherFieldsMayHaveAllFields(t *testing.T) {
	var got v2beta1.MPIJob
	if err := FromMessage(&wire.MPIJob{OtherFields: others(t, map[string]any{"metadata": map[string]any{"name": "pi"}, "spec": map[string]any{"slotsPerWorker": 2}})}, &got); err != nil {
		t.Fatal(err)
	}
	want := v2beta1.MPIJob{Spec: v2beta1.MPIJobSpec{SlotsPerWorker: new(int32(2))}}
	want.Name = "pi"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
