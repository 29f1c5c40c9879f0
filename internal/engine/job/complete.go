// SPDX-License-Identifier: Apache-2.0

package job

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// CompletedResources adds to a worker's requested resources those of the runtime that
// the request does not name. resourcesPerNode replaces all resources of the runtime, so
// a job that sets only CPUs would lose the GPUs. GPUs of one kind replace those of
// another. A resource that the runtime limits is limited to what the job requests.
func CompletedResources(requested *corev1.ResourceRequirements, runtime *v2alpha1.TrainingRuntimeSpec) *corev1.ResourceRequirements {
	completed := requested.DeepCopy()
	worker := runtimeRole(runtime, v2alpha1.ReplicatedJobWorker).Template.Spec
	if len(worker.Containers) == 0 {
		return completed
	}
	sources := []*corev1.ResourceRequirements{&worker.Containers[0].Resources}
	if worker.Resources != nil {
		sources = append(sources, worker.Resources)
	}
	for _, source := range sources {
		limits := source.Limits.DeepCopy()
		for name := range limits {
			if request, found := requested.Requests[name]; found {
				limits[name] = request
			} else if includes(requested, name) {
				delete(limits, name)
			}
		}
		requests := source.Requests.DeepCopy()
		for name := range requests {
			if includes(requested, name) {
				delete(requests, name)
			}
		}
		FillResources(&completed.Requests, requests)
		FillResources(&completed.Limits, limits)
	}
	if len(completed.Claims) == 0 {
		completed.Claims = worker.Containers[0].Resources.Claims
	}
	return completed
}

// includes reports whether the requirements name this resource, or, for a GPU, any GPU.
func includes(resources *corev1.ResourceRequirements, name corev1.ResourceName) bool {
	for _, list := range []corev1.ResourceList{resources.Requests, resources.Limits} {
		for other := range list {
			if other == name || IsGPU(other) && IsGPU(name) {
				return true
			}
		}
	}
	return false
}

// DroppedGPUs are the GPUs of a runtime's worker that a job loses, because its
// resourcesPerNode replaces the runtime's and names no GPUs.
func DroppedGPUs(trainJob *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) corev1.ResourceList {
	requested := trainJob.Spec.Trainer.ResourcesPerNode
	worker := runtimeRole(runtime, v2alpha1.ReplicatedJobWorker).Template.Spec
	if requested == nil || len(worker.Containers) == 0 {
		return nil
	}
	runtimeResources := worker.Containers[0].Resources
	FillResources(&runtimeResources.Requests, runtimeResources.Limits)
	dropped := corev1.ResourceList{}
	for name, amount := range runtimeResources.Requests {
		if IsGPU(name) && amount.Sign() > 0 && !includes(requested, name) {
			dropped[name] = amount
		}
	}
	return dropped
}
