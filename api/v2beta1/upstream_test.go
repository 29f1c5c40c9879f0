// SPDX-License-Identifier: Apache-2.0

package v2beta1

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	upstream "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
)

// Every MPIJob of mpi-operator is one of ours: whatever one of its objects says,
// ours says it too, and nothing more.
func TestUpstreamObjectsAreOurs(t *testing.T) {
	filled := map[string]bool{}
	for seed := range int64(200) {
		before := marshal(t, randomJob(seed))
		// A pointer to a nil map is null; what an API server has stored is not.
		theirs := &upstream.MPIJob{}
		if err := json.Unmarshal(before, theirs); err != nil {
			t.Fatal(err)
		}
		before = marshal(t, theirs)
		ours := &MPIJob{}
		strict := json.NewDecoder(bytes.NewReader(before))
		strict.DisallowUnknownFields()
		if err := strict.Decode(ours); err != nil {
			t.Fatalf("seed %d: %v in\n%s", seed, err, before)
		}
		want, got := unmarshal(t, before), unmarshal(t, marshal(t, ours))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-theirs +ours):\n%s", seed, diff)
		}
		note(filled, "", want)
	}
	// Chance has been everywhere, or the test would say less than it seems to.
	for _, path := range []string{
		".spec.slotsPerWorker", ".spec.runLauncherAsWorker", ".spec.sshAuthMountPath", ".spec.launcherCreationPolicy", ".spec.mpiImplementation",
		".spec.runPolicy.cleanPodPolicy", ".spec.runPolicy.ttlSecondsAfterFinished", ".spec.runPolicy.activeDeadlineSeconds", ".spec.runPolicy.backoffLimit",
		".spec.runPolicy.suspend", ".spec.runPolicy.managedBy", ".spec.runPolicy.schedulingPolicy.minAvailable", ".spec.runPolicy.schedulingPolicy.queue",
		".spec.runPolicy.schedulingPolicy.minResources", ".spec.runPolicy.schedulingPolicy.priorityClass", ".spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds",
		".spec.mpiReplicaSpecs.Worker.replicas", ".spec.mpiReplicaSpecs.Worker.restartPolicy", ".spec.mpiReplicaSpecs.Worker.template.spec.containers",
		".status.conditions[].type", ".status.conditions[].status", ".status.conditions[].reason", ".status.conditions[].message",
		".status.conditions[].lastUpdateTime", ".status.conditions[].lastTransitionTime", ".status.replicaStatuses.Worker.active",
		".status.replicaStatuses.Worker.succeeded", ".status.replicaStatuses.Worker.failed", ".status.replicaStatuses.Worker.labelSelector",
		".status.replicaStatuses.Worker.selector", ".status.startTime", ".status.completionTime", ".status.lastReconcileTime",
	} {
		if !filled[path] {
			t.Errorf("no object had %s", path)
		}
	}
}

// randomJob is filled by chance, with what the library's dice leave out added.
func randomJob(seed int64) *upstream.MPIJob {
	source := rand.NewSource(seed)
	job := &upstream.MPIJob{}
	fuzzer.FuzzerFor(metafuzzer.Funcs, source, serializer.NewCodecFactory(runtime.NewScheme())).Fill(job)
	// Roles are any word, and pointers to times are nil.
	for _, spec := range job.Spec.MPIReplicaSpecs {
		job.Spec.MPIReplicaSpecs[upstream.MPIReplicaTypeWorker] = spec
	}
	for _, status := range job.Status.ReplicaStatuses {
		job.Status.ReplicaStatuses[upstream.MPIReplicaTypeWorker] = status
	}
	for _, time := range []**metav1.Time{&job.Status.StartTime, &job.Status.CompletionTime, &job.Status.LastReconcileTime} {
		if seconds := source.Int63() % 4_000_000_000; seconds%2 == 0 {
			*time = new(metav1.Unix(seconds, 0))
		}
	}
	return job
}

func marshal(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func unmarshal(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func note(filled map[string]bool, at string, value any) {
	filled[at] = true
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			note(filled, at+"."+key, inner)
		}
	case []any:
		for _, inner := range value {
			note(filled, at+"[]", inner)
		}
	}
}

// What mpi-operator has a word for, our schema accepts.
func TestUpstreamWordsAreInOurEnums(t *testing.T) {
	schema := schemaOfMPIJob(t)
	for path, words := range map[string][]string{
		"spec.mpiImplementation":      {string(upstream.MPIImplementationOpenMPI), string(upstream.MPIImplementationIntel), string(upstream.MPIImplementationMPICH)},
		"spec.launcherCreationPolicy": {string(upstream.LauncherCreationPolicyAtStartup), string(upstream.LauncherCreationPolicyWaitForWorkersReady)},
		// Not CleanPodPolicyUndefined: mpi-operator does not run such a job either.
		"spec.runPolicy.cleanPodPolicy": {
			string(upstream.CleanPodPolicyAll), string(upstream.CleanPodPolicyRunning), string(upstream.CleanPodPolicyNone),
		},
		"spec.mpiReplicaSpecs.*.restartPolicy": {
			string(upstream.RestartPolicyAlways), string(upstream.RestartPolicyOnFailure), string(upstream.RestartPolicyNever), string(upstream.RestartPolicyExitCode),
		},
		"status.conditions.*.type": {
			string(upstream.JobCreated), string(upstream.JobRunning), string(upstream.JobRestarting), string(upstream.JobSucceeded), string(upstream.JobSuspended), string(upstream.JobFailed),
		},
		"status.conditions.*.status": {"True", "False", "Unknown"},
	} {
		t.Run(path, func(t *testing.T) {
			field := at(t, schema, path)
			var allowed []string
			for _, word := range field.Enum {
				allowed = append(allowed, strings.Trim(string(word.Raw), `"`))
			}
			for _, word := range words {
				if len(allowed) > 0 && !slices.Contains(allowed, word) {
					t.Errorf("%q is not among %q", word, allowed)
				}
			}
		})
	}
}

// Where a word of theirs is one of ours, it is the same word.
func TestUpstreamWordsAreOurWords(t *testing.T) {
	for ours, theirs := range map[string]string{
		string(MPIReplicaTypeLauncher): string(upstream.MPIReplicaTypeLauncher), string(MPIReplicaTypeWorker): string(upstream.MPIReplicaTypeWorker),
		string(MPIImplementationOpenMPI): string(upstream.MPIImplementationOpenMPI), string(MPIImplementationIntel): string(upstream.MPIImplementationIntel),
		string(MPIImplementationMPICH): string(upstream.MPIImplementationMPICH), ManagedByMPIOperator: upstream.KubeflowJobController,
		training.ManagedByMultiKueue: upstream.MultiKueueController, training.LabelJobName: upstream.JobNameLabel,
		string(JobCreated): string(upstream.JobCreated), string(JobRunning): string(upstream.JobRunning), string(JobRestarting): string(upstream.JobRestarting),
		string(JobSuspended): string(upstream.JobSuspended), string(JobSucceeded): string(upstream.JobSucceeded), string(JobFailed): string(upstream.JobFailed),
		string(LauncherCreationPolicyAtStartup): string(upstream.LauncherCreationPolicyAtStartup), string(LauncherCreationPolicyWaitForWorkersReady): string(upstream.LauncherCreationPolicyWaitForWorkersReady),
		string(training.CleanPodPolicyAll): string(upstream.CleanPodPolicyAll), string(training.CleanPodPolicyNone): string(upstream.CleanPodPolicyNone),
	} {
		if ours != theirs {
			t.Errorf("%q is theirs, and %q ours", theirs, ours)
		}
	}
}

func schemaOfMPIJob(t *testing.T) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile("../../charts/trireme/crds/kubeflow.org_mpijobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// at is a part of a schema; * is any key of a map, or any item of a list.
func at(t *testing.T, schema *apiextensionsv1.JSONSchemaProps, path string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	for _, step := range strings.Split(path, ".") {
		switch property, found := schema.Properties[step]; {
		case found:
			schema = &property
		case step == "*" && schema.Items != nil:
			schema = schema.Items.Schema
		case step == "*" && schema.AdditionalProperties != nil:
			schema = schema.AdditionalProperties.Schema
		default:
			t.Fatalf("the schema has no %s: there is no %s", path, step)
		}
	}
	return schema
}
