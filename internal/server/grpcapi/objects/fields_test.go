// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// promised are the field names by number, from 1, which clients rely on.
var promised = map[string]string{
	"CreateMPIJobRequest":               "namespace spec",
	"CreateMPIJobResponse":              "name namespace uid created_at",
	"GetMPIJobRequest":                  "namespace name",
	"GetMPIJobResponse":                 "mpijob",
	"ListMPIJobsRequest":                "namespace label_selector limit continue_token",
	"ListMPIJobsResponse":               "items continue_token",
	"DeleteMPIJobRequest":               "namespace name",
	"DeleteMPIJobResponse":              "message",
	"GetMPIJobStatusRequest":            "namespace name",
	"GetMPIJobStatusResponse":           "status",
	"WatchMPIJobStatusRequest":          "namespace name",
	"MPIJobStatusEvent":                 "event_type status timestamp",
	"GetMPIJobLogsRequest":              "namespace name pod_type pod_index follow tail_lines since_time",
	"LogMessage":                        "pod_name container_name timestamp message",
	"MPIJob":                            "name namespace uid labels annotations created_at spec status",
	"MPIJobSpec":                        "slots_per_worker mpi_implementation mpi_replica_specs run_policy network_policy",
	"ReplicaSpec":                       "replicas restart_policy template",
	"PodTemplateSpec":                   "labels annotations spec",
	"PodSpec":                           "containers volumes service_account security_context",
	"Container":                         "name image command args env resources volume_mounts",
	"EnvVar":                            "name value",
	"ResourceRequirements":              "requests limits",
	"VolumeMount":                       "name mount_path read_only",
	"Volume":                            "name volume_source",
	"VolumeSource":                      "config_map secret empty_dir persistent_volume_claim",
	"ConfigMapVolumeSource":             "name",
	"SecretVolumeSource":                "secret_name",
	"EmptyDirVolumeSource":              "medium size_limit",
	"PersistentVolumeClaimVolumeSource": "claim_name",
	"SecurityContext":                   "run_as_non_root run_as_user fs_group",
	"RunPolicy":                         "clean_pod_policy ttl_seconds_after_finished active_deadline_seconds backoff_limit scheduling_policy",
	"SchedulingPolicy":                  "priority_class queue",
	"NetworkPolicy":                     "template",
	"MPIJobStatus":                      "conditions start_time completion_time replica_statuses",
	"Condition":                         "type status reason message last_transition_time last_update_time",
	"ReplicaStatus":                     "active succeeded failed",
}

func TestPromisedFields(t *testing.T) {
	for message, want := range promised {
		t.Run(message, func(t *testing.T) {
			found, err := protoregistry.GlobalTypes.FindMessageByName(wire.File_training_mpijob_proto.Package().Append(protoreflect.Name(message)))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for number := range len(strings.Fields(want)) {
				if field := found.Descriptor().Fields().ByNumber(protoreflect.FieldNumber(number + 1)); field != nil {
					got = append(got, string(field.Name()))
				}
			}
			if diff := cmp.Diff(strings.Fields(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPromisedMethods(t *testing.T) {
	want := []string{"CreateMPIJob", "GetMPIJob", "ListMPIJobs", "DeleteMPIJob", "GetMPIJobStatus", "WatchMPIJobStatus stream", "GetMPIJobLogs stream"}
	service := wire.File_training_mpijob_proto.Services().ByName("MPIJobService")
	if service.FullName() != "training.MPIJobService" {
		t.Errorf("the service is %s", service.FullName())
	}
	var got []string
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		name := string(method.Name())
		if method.IsStreamingServer() {
			name += " stream"
		}
		got = append(got, name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Every message that is part of a job has other_fields.
func TestMessagesOfJobsCarryEverything(t *testing.T) {
	var seen []protoreflect.FullName
	var visit func(message protoreflect.MessageDescriptor)
	visit = func(message protoreflect.MessageDescriptor) {
		name := message.FullName()
		if name == timestampName || name == structName || slices.Contains(seen, name) {
			return
		}
		seen = append(seen, name)
		if !message.IsMapEntry() && layouts[name].otherFields == nil && layouts[name].inline == nil {
			t.Errorf("%s has no field other_fields", name)
		}
		for i := range message.Fields().Len() {
			if inner := message.Fields().Get(i).Message(); inner != nil {
				visit(inner)
			}
		}
	}
	visit((&wire.MPIJob{}).ProtoReflect().Descriptor())
	visit((&wire.TrainJob{}).ProtoReflect().Descriptor())
	if len(seen) < 30 {
		t.Errorf("only %d messages were seen", len(seen))
	}
}

// TestEveryFieldIsInTheProto: fields of our own types have a name in gRPC, and are not
// left to other_fields.
func TestEveryFieldIsInTheProto(t *testing.T) {
	for name, object := range map[string]reflect.Type{
		"TrainJobSpec": reflect.TypeFor[v2alpha1.TrainJobSpec](), "Trainer": reflect.TypeFor[v2alpha1.Trainer](), "TrainJobStatus": reflect.TypeFor[v2alpha1.TrainJobStatus](),
		"MPIJobSpec": reflect.TypeFor[v2beta1.MPIJobSpec](), "RunPolicy": reflect.TypeFor[v2beta1.RunPolicy](), "MPIJobStatus": reflect.TypeFor[v2beta1.MPIJobStatus](),
		"Restart": reflect.TypeFor[training.Restart](), "QuotaWait": reflect.TypeFor[training.QuotaWait](), "FailedProcess": reflect.TypeFor[training.FailedProcess](),
	} {
		message, err := protoregistry.GlobalTypes.FindMessageByName(wire.File_training_mpijob_proto.Package().Append(protoreflect.Name(name)))
		if err != nil {
			t.Fatal(err)
		}
		fields := message.Descriptor().Fields()
		for _, jsonName := range jsonNames(object) {
			if fields.ByJSONName(jsonName) == nil {
				t.Errorf("the message %s has no field %s: add it to the proto file", name, jsonName)
			}
		}
	}
}

// jsonNames are the names of a type's fields, those of embedded types included.
func jsonNames(object reflect.Type) (names []string) {
	for i := range object.NumField() {
		field := object.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			names = append(names, jsonNames(field.Type)...)
			continue
		}
		names = append(names, name)
	}
	return names
}
