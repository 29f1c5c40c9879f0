// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/testing/random"
)

// Each kind is fuzzed in two ways: by what a client might send, as bytes that
// start from real manifests, and by whole objects that are filled at random.
// Whatever comes, nothing panics, the same question gets the same answer, and
// what the user wrote stays as it was.

func FuzzMPIJob(f *testing.F) {
	addManifests(f, "MPIJob")
	f.Fuzz(func(t *testing.T, seed int64, text []byte) {
		for _, mpiJob := range objects(t, seed, text, func() *v2beta1.MPIJob { return &v2beta1.MPIJob{} }) {
			before := mpiJob.DeepCopy()
			first := job.FromMPIJob(mpiJob, rules().Defaults)
			wantSame(t, "the model", first, job.FromMPIJob(withTemplates(mpiJob, first), rules().Defaults))
			wantSame(t, "the answer", texts(rules().CreateMPIJob(mpiJob, somewhere())), texts(rules().CreateMPIJob(mpiJob, somewhere())))
			wantNothing(t, "an update that changes nothing", rules().UpdateMPIJob(mpiJob, mpiJob))
			wantUntouched(t, before, mpiJob)
		}
	})
}

func FuzzTrainJob(f *testing.F) {
	addManifests(f, "TrainJob")
	f.Fuzz(func(t *testing.T, seed int64, text []byte) {
		runtimes := objects(t, seed, nil, func() *v2alpha1.TrainingRuntime { return &v2alpha1.TrainingRuntime{} })
		for _, trainJob := range objects(t, seed, text, func() *v2alpha1.TrainJob { return &v2alpha1.TrainJob{} }) {
			before := trainJob.DeepCopy()
			in := somewhere()
			in.Runtime = &runtimes[0].Spec
			runtimeBefore := in.Runtime.DeepCopy()
			wantSame(t, "the model", job.FromTrainJob(trainJob, in.Runtime, rules().Defaults), job.FromTrainJob(trainJob, in.Runtime, rules().Defaults))
			wantSame(t, "the answer", texts(rules().CreateTrainJob(trainJob, in)), texts(rules().CreateTrainJob(trainJob, in)))
			wantNothing(t, "an update that changes nothing", rules().UpdateTrainJob(trainJob, trainJob))
			wantUntouched(t, before, trainJob)
			wantUntouched(t, runtimeBefore, in.Runtime)
		}
	})
}

func FuzzRuntime(f *testing.F) {
	addManifests(f, "ClusterTrainingRuntime", "TrainingRuntime")
	f.Fuzz(func(t *testing.T, seed int64, text []byte) {
		for _, runtime := range objects(t, seed, text, func() *v2alpha1.ClusterTrainingRuntime { return &v2alpha1.ClusterTrainingRuntime{} }) {
			before := runtime.DeepCopy()
			wantSame(t, "the answer", texts(rules().Runtime(&runtime.Spec, len(text))), texts(rules().Runtime(&runtime.Spec, len(text))))
			wantUntouched(t, before, runtime)
		}
	})
}

func rules() *Rules { return NewRules(config.Default(), false) }

// somewhere is a namespace with quotas of all sorts.
func somewhere() *ClusterFacts {
	return &ClusterFacts{
		NamespaceLabels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
		Quotas: []corev1.ResourceQuota{
			{Spec: corev1.ResourceQuotaSpec{Hard: list("requests.cpu", "10", "limits.memory", "1Gi", "pods", "3", "requests.nvidia.com/gpu", "1", "services", "0")}},
			{Spec: corev1.ResourceQuotaSpec{Hard: list("pods", "1"), Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}}},
		},
		LimitRanges: []corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Max: list("cpu", "4"), Min: list("memory", "1Mi"), DefaultRequest: list("cpu", "1")},
			{Type: corev1.LimitTypePod, Max: list("cpu", "4")},
		}}}},
		HasPriorityClass: func(name string) bool { return len(name)%2 == 0 },
		AnyNodeHas:       func(corev1.ResourceName) bool { return false },
		RunningJobs:      func() int { return 1 },
	}
}

func list(pairs ...string) corev1.ResourceList {
	result := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		result[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return result
}

const repository = "../../.."

// addManifests starts the fuzzer from the manifests of the repository.
func addManifests(f *testing.F, kinds ...string) {
	f.Helper()
	for i, manifest := range random.Manifests(f, repository, kinds...) {
		f.Add(int64(i), manifest)
	}
	f.Add(int64(-1), []byte(`{"spec":{"slotsPerWorker":-2147483648,"mpiReplicaSpecs":{"Worker":null,"Launcher":{"replicas":2147483647}}}}`))
	f.Add(int64(-2), []byte(`{"spec":{"mpiReplicaSpecs":{"Worker":{"replicas":2147483647,"template":{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e30","nvidia.com/gpu":"-9223372036854775808","memory":"9223372036854775807"}}}]}}}}}}`))
	f.Add(int64(-3), []byte(`{"spec":{"trainer":{"numNodes":2147483647,"slotsPerWorker":2147483647,"command":[""],"args":["-np"]},"initializer":{"dataset":{"storageUri":"%zz"},"storage":{"size":"-1"}}}}`))
}

// objects are one that the bytes describe, if they do, and one filled at random.
func objects[T any](t *testing.T, seed int64, text []byte, empty func() T) []T {
	t.Helper()
	filled := empty()
	random.Fill(seed, filled)
	objects := []T{filled}
	sent := empty()
	if json.Unmarshal(text, sent) == nil {
		objects = append(objects, sent)
	}
	return objects
}

// withTemplates is the job with the defaults that its templates were given, as
// if the user had written them.
func withTemplates(mpiJob *v2beta1.MPIJob, model *job.Job) *v2beta1.MPIJob {
	again := mpiJob.DeepCopy()
	for role, template := range map[v2beta1.MPIReplicaType]*corev1.PodTemplateSpec{
		v2beta1.MPIReplicaTypeLauncher: &model.Launcher.Template, v2beta1.MPIReplicaTypeWorker: &model.Worker.Template,
	} {
		if replica := again.Spec.MPIReplicaSpecs[role]; replica != nil {
			replica.Template = *template.DeepCopy()
		}
	}
	return again
}

func texts(findings *Findings) []string {
	lines := findings.WarningTexts()
	for _, fault := range findings.Errors {
		lines = append(lines, fault.Error())
	}
	return lines
}

func wantSame[T any](t *testing.T, what string, first, second T) {
	t.Helper()
	if !equality.Semantic.DeepEqual(first, second) {
		t.Errorf("%s is not the same the second time:\n%s", what, cmp.Diff(first, second))
	}
}

func wantNothing(t *testing.T, what string, findings *Findings) {
	t.Helper()
	if len(findings.Errors) > 0 {
		t.Errorf("%s is refused: %v", what, findings.Errors)
	}
}

func wantUntouched[T any](t *testing.T, before, after T) {
	t.Helper()
	if !equality.Semantic.DeepEqual(before, after) {
		t.Errorf("what the user wrote was changed:\n%s", cmp.Diff(before, after))
	}
}
