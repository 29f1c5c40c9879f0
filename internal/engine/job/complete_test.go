// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// amounts is a list of resources, from alternating names and quantities.
func amounts(words ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(words); i += 2 {
		list[corev1.ResourceName(words[i])] = resource.MustParse(words[i+1])
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

func TestCompletedResources(t *testing.T) {
	gpuRuntime := corev1.ResourceRequirements{Requests: amounts("cpu", "4", "memory", "16Gi"), Limits: amounts("cpu", "4", "nvidia.com/gpu", "2")}
	tests := map[string]struct {
		asked   corev1.ResourceRequirements
		runtime corev1.ResourceRequirements
		pod     *corev1.ResourceRequirements
		want    corev1.ResourceRequirements
	}{
		"CPUs": {
			asked: corev1.ResourceRequirements{Requests: amounts("cpu", "8")}, runtime: gpuRuntime,
			want: corev1.ResourceRequirements{Requests: amounts("cpu", "8", "memory", "16Gi"), Limits: amounts("cpu", "8", "nvidia.com/gpu", "2")},
		},
		"memory without a limit": {
			asked: corev1.ResourceRequirements{Requests: amounts("memory", "64Gi")}, runtime: gpuRuntime,
			want: corev1.ResourceRequirements{Requests: amounts("cpu", "4", "memory", "64Gi"), Limits: amounts("cpu", "4", "nvidia.com/gpu", "2")},
		},
		"other GPUs": {
			asked:   corev1.ResourceRequirements{Requests: amounts("amd.com/gpu", "1"), Limits: amounts("amd.com/gpu", "1")},
			runtime: gpuRuntime,
			want:    corev1.ResourceRequirements{Requests: amounts("cpu", "4", "memory", "16Gi", "amd.com/gpu", "1"), Limits: amounts("cpu", "4", "amd.com/gpu", "1")},
		},
		"no GPUs": {
			asked:   corev1.ResourceRequirements{Requests: amounts("nvidia.com/gpu", "0"), Limits: amounts("nvidia.com/gpu", "0")},
			runtime: gpuRuntime,
			want:    corev1.ResourceRequirements{Requests: amounts("cpu", "4", "memory", "16Gi", "nvidia.com/gpu", "0"), Limits: amounts("cpu", "4", "nvidia.com/gpu", "0")},
		},
		"pod-level resources": {
			asked: corev1.ResourceRequirements{Requests: amounts("cpu", "8")}, pod: &corev1.ResourceRequirements{Requests: amounts("cpu", "4", "memory", "16Gi")},
			want: corev1.ResourceRequirements{Requests: amounts("cpu", "8", "memory", "16Gi")},
		},
		"a runtime without resources": {
			asked: corev1.ResourceRequirements{Requests: amounts("cpu", "8")}, want: corev1.ResourceRequirements{Requests: amounts("cpu", "8")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := CompletedResources(&test.asked, workerRuntime(test.runtime, test.pod))
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDroppedGPUs(t *testing.T) {
	runtime := workerRuntime(corev1.ResourceRequirements{Requests: amounts("cpu", "4"), Limits: amounts("nvidia.com/gpu", "2")}, nil)
	tests := map[string]struct {
		own  *corev1.ResourceRequirements
		want corev1.ResourceList
	}{
		"the runtime's":       {},
		"CPUs only":           {&corev1.ResourceRequirements{Requests: amounts("cpu", "8")}, amounts("nvidia.com/gpu", "2")},
		"fewer GPUs":          {&corev1.ResourceRequirements{Limits: amounts("nvidia.com/gpu", "1")}, nil},
		"no GPUs, on purpose": {&corev1.ResourceRequirements{Limits: amounts("nvidia.com/gpu", "0")}, nil},
		"other GPUs":          {&corev1.ResourceRequirements{Limits: amounts("amd.com/gpu", "1")}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := DroppedGPUs(&v2alpha1.TrainJob{Spec: v2alpha1.TrainJobSpec{Trainer: v2alpha1.Trainer{ResourcesPerNode: test.own}}}, runtime)
			if len(got) != len(test.want) || len(got) > 0 && !cmp.Equal(test.want, got) {
				t.Errorf("dropped: %v, want %v", got, test.want)
			}
		})
	}
}

// workerRuntime is a runtime whose worker has resources.
func workerRuntime(resources corev1.ResourceRequirements, pod *corev1.ResourceRequirements) *v2alpha1.TrainingRuntimeSpec {
	return &v2alpha1.TrainingRuntimeSpec{Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{{
		Name: v2alpha1.ReplicatedJobWorker, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: resources}}, Resources: pod}},
	}}}}}
}
