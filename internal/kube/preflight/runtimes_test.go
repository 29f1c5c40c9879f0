// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func TestRuntime(t *testing.T) {
	launcher := func(runtime *v2alpha1.TrainingRuntimeSpec) *corev1.PodSpec {
		return &runtime.Template.Spec.ReplicatedJobs[0].Template.Spec
	}
	worker := func(runtime *v2alpha1.TrainingRuntimeSpec) *corev1.PodSpec {
		return &runtime.Template.Spec.ReplicatedJobs[1].Template.Spec
	}
	asks := func(pod *corev1.PodSpec, pairs ...string) {
		pod.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts(pairs...), Limits: amounts(pairs...)}
	}
	type spec = *v2alpha1.TrainingRuntimeSpec
	for name, test := range map[string]struct {
		change           func(spec)
		errors, warnings []string
	}{
		"in order":                 {change: func(spec) {}},
		"an MPI that there is not": {change: func(runtime spec) { runtime.MLPolicy.MPIImplementation = "LAM" }, errors: []string{"spec.mlPolicy.mpiImplementation"}},
		"no MPI":                   {change: func(runtime spec) { runtime.MLPolicy.MPIImplementation = "" }, warnings: []string{"spec.mlPolicy.mpiImplementation: is not set"}},
		"too many slots":           {change: func(runtime spec) { runtime.MLPolicy.SlotsPerWorker = new(int32(17)) }, errors: []string{"spec.mlPolicy.slotsPerWorker"}},
		"too short a time": {change: func(runtime spec) {
			runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Coscheduling: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(59))}}
		}, errors: []string{"spec.podGroupPolicy.coscheduling.scheduleTimeoutSeconds"}},
		"no worker":                 {change: func(runtime spec) { runtime.Template.Spec.ReplicatedJobs = runtime.Template.Spec.ReplicatedJobs[:1] }, errors: []string{"spec.template.spec.replicatedJobs"}},
		"a launcher with GPUs":      {change: func(runtime spec) { asks(launcher(runtime), "nvidia.com/gpu", "1") }, warnings: []string{"replicatedJobs[0].template.spec.containers: the launcher requests 1 GPU,"}},
		"a launcher with many CPUs": {change: func(runtime spec) { asks(launcher(runtime), "cpu", "17") }, warnings: []string{"the launcher requests 17 CPUs"}},
		"a launcher among GPUs": {change: func(runtime spec) {
			launcher(runtime).NodeSelector = map[string]string{"nvidia.com/gpu.product": "A100"}
		}, warnings: []string{"replicatedJobs[0].template.spec.nodeSelector: the launcher requests no GPU"}},
		"a worker with an sshd": {change: func(runtime spec) { worker(runtime).Containers[0].Command = []string{"sshd"} }, warnings: []string{"replicatedJobs[1].template.spec.containers[0].command: the worker has its own command"}},
		"more slots than GPUs": {change: func(runtime spec) {
			asks(worker(runtime), "nvidia.com/gpu", "2")
			runtime.MLPolicy.SlotsPerWorker = new(int32(4))
		}, warnings: []string{"4 slots share 2 GPUs"}},
		"a GPU each": {change: func(runtime spec) {
			asks(worker(runtime), "nvidia.com/gpu", "2")
			runtime.MLPolicy.SlotsPerWorker = new(int32(2))
		}},
		"workers on one node": {change: func(runtime spec) { worker(runtime).NodeSelector = map[string]string{corev1.LabelHostname: "n1"} }, warnings: []string{"kubernetes.io/hostname schedules every worker on node n1"}},
		"workers among GPUs":  {change: func(runtime spec) { worker(runtime).NodeSelector = map[string]string{"amd.com/gpu.family": "x"} }, warnings: []string{"workers request no GPU, but amd.com/gpu.family"}},
	} {
		t.Run(name, func(t *testing.T) {
			runtime := runtimeSpec()
			for i := range runtime.Template.Spec.ReplicatedJobs {
				runtime.Template.Spec.ReplicatedJobs[i].Template.Annotations = map[string]string{"sidecar.istio.io/inject": "false"}
			}
			test.change(runtime)
			findings := Runtime(runtime, 100)
			var faults []string
			for _, fault := range findings.Errors {
				faults = append(faults, fault.Field)
			}
			if diff := cmp.Diff(test.errors, faults); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if len(findings.Warnings) != len(test.warnings) {
				t.Fatalf("the warnings are %q, want %q", findings.Warnings, test.warnings)
			}
			for i, want := range test.warnings {
				if !strings.Contains(findings.Warnings[i].String(), want) {
					t.Errorf("no word of %q in %q", want, findings.Warnings[i].String())
				}
			}
		})
	}
}
