// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// The PodGroups of Kubernetes itself. Each release serves one of them: 1.37 v1beta1, 1.36
// v1alpha2. Release 1.35 has no PodGroup; its Workload of v1alpha1 is not supported.
var (
	nativeBeta  = nativeKind("v1beta1")
	nativeAlpha = nativeKind("v1alpha2")
)

func nativeKind(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: version, Kind: podGroup}
}

var nativeScheduler = scheduler{
	name:  job.Native,
	kinds: []schema.GroupVersionKind{nativeBeta, nativeAlpha},
	backend: func(kind schema.GroupVersionKind, podScheduler string) Backend {
		return native{kind: kind, scheduler: podScheduler}
	},
	remedy: "run Kubernetes 1.37 or 1.36 with that API and the feature gate GenericWorkload turned on (1.36 also needs GangScheduling)",
}

// native is the gang scheduling of kube-scheduler itself.
type native struct {
	kind schema.GroupVersionKind
	// scheduler is the schedulerName that the job sets; empty is Kubernetes' default. All
	// pods of a group must have the same one.
	scheduler string
}

func (native) Name() job.Scheduler                  { return job.Native }
func (b native) GroupKind() schema.GroupVersionKind { return b.kind }

// Group has no Workload: that is optional, and the scheduler needs nothing from it. It
// has no fields for resources or a timeout. It is unstructured, because the client
// libraries of one release do not have the kind of the other.
func (b native) Group(j *job.Job, labels map[string]string) Object {
	spec := map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(j.Gang.MinMember)}}}
	// From v1beta1 on, the scheduler uses the priority of the group instead of that of its
	// pods. In v1alpha2 the field needs another feature gate.
	if class := nativePriorityClass(j); class != "" && b.kind != nativeAlpha {
		spec["priorityClassName"] = class
	}
	return customGroup(b.kind, j, labels, spec)
}

// nativePriorityClass is the class of the workers, which may set one of their own.
func nativePriorityClass(j *job.Job) string {
	return cmp.Or(j.Worker.Template.Spec.PriorityClassName, j.Gang.PriorityClass)
}

func (b native) Join(j *job.Job, template *corev1.PodTemplateSpec) {
	name := j.Name
	template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	setScheduler(template, b.scheduler)
}

func (native) MinMember(group Object) (int32, bool) {
	return intField(group, "spec", "schedulingPolicy", "gang", "minCount")
}
