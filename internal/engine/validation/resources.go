// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// tooMuch is more than any machine has. The limit keeps sums from overflowing.
var tooMuch = resource.MustParse("1Ei")

func (pc *podCheck) resources(at *field.Path, resources *corev1.ResourceRequirements) {
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", resources.Requests}, {"limits", resources.Limits}} {
		for _, name := range job.ResourceNames(part.list) {
			pc.quantity(at.Child(part.name).Key(string(name)), name, part.list[name])
		}
	}
	for _, name := range job.ResourceNames(resources.Limits) {
		limit, request := resources.Limits[name], resources.Requests[name]
		if limit.Sign() >= 0 && request.Cmp(limit) > 0 {
			pc.findings.refuse(field.Invalid(at.Child("limits").Key(string(name)), limit.String(),
				fmt.Sprintf("must be at least the request, %s", request.String())))
		}
	}
	for _, name := range job.ResourceNames(resources.Requests) {
		request := resources.Requests[name]
		limit, limited := resources.Limits[name]
		if countable(name) && (!limited || limit.Cmp(request) > 0) {
			pc.findings.refuse(field.Invalid(at.Child("requests").Key(string(name)), request.String(),
				fmt.Sprintf("%s cannot be overcommitted: set a limit that equals the request, or only a limit", name)))
		}
	}
}

func (pc *podCheck) quantity(at *field.Path, name corev1.ResourceName, quantity resource.Quantity) {
	switch {
	case !isResource(name):
		pc.findings.refuse(field.Invalid(at, name, "is not a resource name; device resources have names like nvidia.com/gpu"))
	case quantity.Sign() < 0:
		pc.findings.refuse(field.Invalid(at, quantity.String(), "must not be negative"))
	case quantity.Cmp(tooMuch) > 0:
		pc.findings.refuse(field.Invalid(at, quantity.String(), "is more than any node has"))
	case countable(name) && quantity.MilliValue()%1000 != 0:
		pc.findings.refuse(field.Invalid(at, quantity.String(), "must be a whole number"))
	}
}

// isResource reports whether a pod can request a resource of this name.
func isResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.Contains(string(name), "/") && len(utilvalidation.IsQualifiedName(string(name))) == 0
}

// countable reports whether a resource is allocated in whole numbers to one container:
// devices and huge pages.
func countable(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// pods are the pods of one role, with the paths of their fields in the object.
type pods struct {
	role string
	job.Role
	at        *field.Path
	resources *field.Path
	// priorityClass is the path of the pods' own priorityClassName.
	priorityClass *field.Path
}

// workerResources checks the requests of a worker. If the job runs elsewhere, in another
// cluster, the nodes of this cluster do not matter.
func (r *Rules) workerResources(findings *Findings, worker pods, in *ClusterFacts, elsewhere bool) {
	if worker.Replicas == 0 {
		return
	}
	// A LimitRange may set requests of a worker that has none; the minimum only applies
	// to its own requests.
	requested, stored := nonZero(job.Requests(&worker.Template.Spec)), nonZero(job.Requests(asStored(&worker.Template.Spec, in)))
	switch {
	case len(stored) == 0:
		findings.refuse(field.Required(worker.resources, "Worker pod missing resource requests"))
	case len(requested) > 0 && onlyGPUs(stored):
		findings.warn(worker.resources, "workers request only GPUs; without CPU and memory requests they can be scheduled on a node that has too little of either")
	}
	for _, least := range []struct {
		name     corev1.ResourceName
		quantity resource.Quantity
	}{{corev1.ResourceCPU, r.Limits.MinCPU}, {corev1.ResourceMemory, r.Limits.MinMemory}} {
		if request, found := requested[least.name]; found && request.Sign() > 0 && request.Cmp(least.quantity) < 0 {
			findings.refuse(field.Invalid(worker.resources.Child("requests").Key(string(least.name)), request.String(),
				fmt.Sprintf("a worker must request at least %s %s", least.quantity.String(), least.name)))
		}
	}
	if in.AnyNodeHas == nil || elsewhere {
		return
	}
	for _, name := range MissingGPUs(requested, in.AnyNodeHas) {
		findings.warn(worker.resources, "no node of this cluster has %s now; the job waits until a node has it", name)
	}
}

// MissingGPUs are the requested GPU resources that no node has.
func MissingGPUs(requests corev1.ResourceList, anyNodeHas func(corev1.ResourceName) bool) (missing []corev1.ResourceName) {
	for _, name := range job.ResourceNames(requests) {
		if quantity := requests[name]; job.IsGPU(name) && !quantity.IsZero() && !anyNodeHas(name) {
			missing = append(missing, name)
		}
	}
	return missing
}

func nonZero(list corev1.ResourceList) corev1.ResourceList {
	result := corev1.ResourceList{}
	for name, quantity := range list {
		if !quantity.IsZero() {
			result[name] = quantity
		}
	}
	return result
}

func onlyGPUs(list corev1.ResourceList) bool {
	for name := range list {
		if !job.IsGPU(name) {
			return false
		}
	}
	return true
}

// slotsMatchGPUs warns if a worker does not have one slot for each GPU.
func slotsMatchGPUs(findings *Findings, at *field.Path, slots int32, worker *corev1.PodSpec) {
	if gpus, order := CompareSlots(slots, worker); order != 0 {
		findings.warn(at, "a worker has %d slots and %s GPUs; usually one MPI process runs on each GPU", slots, gpus)
	}
}

// CompareSlots compares the slots of a worker with its GPUs: order is positive if it
// has more slots, negative if it has more GPUs, and 0 if it has no GPUs at all.
func CompareSlots(slots int32, worker *corev1.PodSpec) (gpus *resource.Quantity, order int) {
	gpus = job.GPUs(job.Requests(worker))
	if gpus.IsZero() {
		return gpus, 0
	}
	return gpus, -gpus.CmpInt64(int64(slots))
}
