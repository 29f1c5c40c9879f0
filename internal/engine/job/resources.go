// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
)

// Requests are the resources that one pod requests, computed like Kubernetes does: a
// limit without a request is also the request, and init containers count if they
// request more than the containers.
func Requests(pod *corev1.PodSpec) corev1.ResourceList {
	return podresources.PodRequests(&corev1.Pod{Spec: *WithRequestsFromLimits(pod)}, podresources.PodResourcesOptions{})
}

// Limits are the resource limits of one pod.
func Limits(pod *corev1.PodSpec) corev1.ResourceList {
	return podresources.PodLimits(&corev1.Pod{Spec: *pod}, podresources.PodResourcesOptions{})
}

// WithRequestsFromLimits is the pod with the default requests that Kubernetes sets.
func WithRequestsFromLimits(pod *corev1.PodSpec) *corev1.PodSpec {
	pod = pod.DeepCopy()
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			FillResources(&containers[i].Resources.Requests, containers[i].Resources.Limits)
		}
	}
	fillPodRequests(pod)
	return pod
}

// fillPodRequests sets the pod-level requests of a pod with pod-level limits: the sum of
// its containers' requests, or else the limits.
func fillPodRequests(pod *corev1.PodSpec) {
	if pod.Resources == nil || len(pod.Resources.Limits) == 0 {
		return
	}
	containers := podresources.AggregateContainerRequests(&corev1.Pod{Spec: *pod}, podresources.PodResourcesOptions{})
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if sum, found := containers[name]; found {
			FillResources(&pod.Resources.Requests, corev1.ResourceList{name: sum})
		}
	}
	FillResources(&pod.Resources.Requests, pod.Resources.Limits)
}

// FillResources adds the resources that are missing in a list.
func FillResources(list *corev1.ResourceList, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, found := (*list)[name]; found {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = quantity.DeepCopy()
	}
}

// IsGPU reports whether a resource is a GPU of any vendor: nvidia.com/gpu,
// amd.com/gpu, gpu.intel.com/i915, nvidia.com/gpu.shared, nvidia.com/mig-1g.5gb,
// habana.ai/gaudi.
func IsGPU(name corev1.ResourceName) bool {
	vendor, device, extended := strings.Cut(string(name), "/")
	if !extended {
		return false
	}
	// Intel also has resources for parts of a GPU, which do not count.
	if vendor == "gpu.intel.com" {
		return device == "i915" || device == "xe"
	}
	return device == "gpu" || device == "gaudi" || strings.HasPrefix(device, "mig-") ||
		strings.HasPrefix(device, "gpu.") || strings.HasSuffix(device, ".gpu") || strings.HasSuffix(device, "-gpu")
}

// GPUs is the number of GPUs in a list, of all vendors.
func GPUs(list corev1.ResourceList) *resource.Quantity {
	total := &resource.Quantity{}
	for _, name := range ResourceNames(list) {
		if IsGPU(name) {
			total.Add(list[name])
		}
	}
	return total
}

// ResourceNames are the names in a list, sorted.
func ResourceNames(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TotalRequests are the requests of all pods of a job, without initializers.
func (j *Job) TotalRequests() corev1.ResourceList {
	total := corev1.ResourceList{}
	for _, role := range []*Role{&j.Launcher, &j.Worker} {
		for name, quantity := range Requests(&role.Template.Spec) {
			quantity.Mul(int64(role.Replicas))
			sum := total[name]
			sum.Add(quantity)
			total[name] = sum
		}
	}
	return total
}
