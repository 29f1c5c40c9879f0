// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestIsGPU(t *testing.T) {
	for name, want := range map[corev1.ResourceName]bool{
		"nvidia.com/gpu":                 true,
		"nvidia.com/gpu.shared":          true,
		"nvidia.com/mig-1g.5gb":          true,
		"nvidia.com/mig-1g.5gb.shared":   true,
		"amd.com/gpu":                    true,
		"gpu.intel.com/i915":             true,
		"gpu.intel.com/xe":               true,
		"gpu.intel.com/millicores":       false,
		"gpu.intel.com/memory.max":       false,
		"gpu.intel.com/i915_monitoring":  false,
		"habana.ai/gaudi":                true,
		"example.com/big-gpu":            true,
		"example.com/big.gpu":            true,
		"requests.nvidia.com/gpu":        true,
		"cpu":                            false,
		"gpu":                            false,
		"memory":                         false,
		"hugepages-2Mi":                  false,
		"rdma/hca_shared_devices_a":      false,
		"google.com/tpu":                 false,
		"vpc.amazonaws.com/efa":          false,
		"nvidia.com/gpumem":              false,
		"aliyun.com/gpu-mem":             false,
		"gpus.example.com/license":       false,
		"openshift.io/mellanoxnics-gpu1": false,
		"example.com/migrations":         false,
		"":                               false,
	} {
		if got := IsGPU(name); got != want {
			t.Errorf("IsGPU(%q) is %t, want %t", name, got, want)
		}
	}
}

func TestGPUs(t *testing.T) {
	tests := map[string]struct {
		list corev1.ResourceList
		want int64
	}{
		"nothing":          {},
		"none":             {list: list("cpu", "8", "rdma/hca", "1")},
		"of one vendor":    {list: list("cpu", "8", "nvidia.com/gpu", "4"), want: 4},
		"of every vendor":  {list: list("amd.com/gpu", "1", "nvidia.com/gpu", "4", "habana.ai/gaudi", "2"), want: 7},
		"whole and sliced": {list: list("nvidia.com/gpu", "1", "nvidia.com/mig-1g.5gb", "7"), want: 8},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := GPUs(tc.list); got.Value() != tc.want {
				t.Errorf("%s GPUs, want %d", got, tc.want)
			}
		})
	}
}

func TestRequestsAndLimits(t *testing.T) {
	container := func(requests, limits corev1.ResourceList) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	sidecar := container(list("cpu", "1"), list("cpu", "2"))
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	tests := map[string]struct {
		pod                      corev1.PodSpec
		wantRequests, wantLimits corev1.ResourceList
	}{
		"nothing": {pod: corev1.PodSpec{Containers: []corev1.Container{container(nil, nil)}}, wantRequests: list(), wantLimits: list()},
		"containers add up": {
			pod:          corev1.PodSpec{Containers: []corev1.Container{container(list("cpu", "1"), list("cpu", "2")), container(list("cpu", "3"), nil)}},
			wantRequests: list("cpu", "4"), wantLimits: list("cpu", "2"),
		},
		"a limit without a request is also the request": {
			pod:          corev1.PodSpec{Containers: []corev1.Container{container(list("memory", "1Gi"), list("memory", "2Gi", "nvidia.com/gpu", "1"))}},
			wantRequests: list("memory", "1Gi", "nvidia.com/gpu", "1"), wantLimits: list("memory", "2Gi", "nvidia.com/gpu", "1"),
		},
		"an init container counts where it is larger": {
			pod: corev1.PodSpec{
				InitContainers: []corev1.Container{container(nil, list("cpu", "4", "memory", "1Gi")), container(list("cpu", "3"), nil)},
				Containers:     []corev1.Container{container(nil, list("cpu", "2", "memory", "2Gi"))},
			},
			wantRequests: list("cpu", "4", "memory", "2Gi"), wantLimits: list("cpu", "4", "memory", "2Gi"),
		},
		"a sidecar is added": {
			pod: corev1.PodSpec{
				InitContainers: []corev1.Container{sidecar, container(list("cpu", "5"), nil)},
				Containers:     []corev1.Container{container(list("cpu", "2"), list("cpu", "2"))},
			},
			wantRequests: list("cpu", "6"), wantLimits: list("cpu", "4"),
		},
		"pod-level resources replace those of containers": {
			pod: corev1.PodSpec{
				Resources:  &corev1.ResourceRequirements{Requests: list("cpu", "7"), Limits: list("cpu", "9")},
				Containers: []corev1.Container{container(list("cpu", "2", "nvidia.com/gpu", "1"), nil)},
			},
			wantRequests: list("cpu", "7", "nvidia.com/gpu", "1"), wantLimits: list("cpu", "9"),
		},
		"pod-level limits are the requests if containers have none": {
			pod: corev1.PodSpec{
				Resources:  &corev1.ResourceRequirements{Limits: list("cpu", "9", "memory", "8Gi")},
				Containers: []corev1.Container{container(list("memory", "2Gi"), nil)},
			},
			wantRequests: list("cpu", "9", "memory", "2Gi"), wantLimits: list("cpu", "9", "memory", "8Gi"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := tc.pod.DeepCopy()
			if diff := cmp.Diff(tc.wantRequests, Requests(&tc.pod)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantLimits, Limits(&tc.pod)); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, &tc.pod); diff != "" {
				t.Errorf("the pod was changed:\n%s", diff)
			}
		})
	}
}

func TestFillResources(t *testing.T) {
	tests := map[string]struct{ list, from, want corev1.ResourceList }{
		"both empty":           {},
		"empty list":           {from: list("cpu", "1"), want: list("cpu", "1")},
		"nothing to add":       {list: list("cpu", "1"), want: list("cpu", "1")},
		"existing values stay": {list: list("cpu", "1"), from: list("cpu", "2", "memory", "2Gi"), want: list("cpu", "1", "memory", "2Gi")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			FillResources(&tc.list, tc.from)
			if diff := cmp.Diff(tc.want, tc.list); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResourceNamesAreSorted(t *testing.T) {
	want := []corev1.ResourceName{"amd.com/gpu", "cpu", "memory", "nvidia.com/gpu"}
	if diff := cmp.Diff(want, ResourceNames(list("memory", "1", "nvidia.com/gpu", "1", "cpu", "1", "amd.com/gpu", "1"))); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
