// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// nativeKind is the PodGroup of Kubernetes 1.36, the only release that serves this
// version. Each other release would need its own scheduler entry: 1.35 has a Workload of
// v1alpha1 and spec.workloadRef in pods; 1.37 has this PodGroup as v1beta1, with other
// conditions in its status.
var nativeKind = schedulingv1alpha2.SchemeGroupVersion.WithKind(podGroup)

var nativeScheduler = scheduler{
	name:    job.Native,
	backend: func(podScheduler string) Backend { return native{podScheduler} },
	remedy:  "run Kubernetes 1.36 with that API and the feature gates GenericWorkload and GangScheduling turned on",
}

// native is the gang scheduling of kube-scheduler itself.
type native struct {
	// scheduler is the schedulerName that the job sets; empty is Kubernetes' default. All
	// pods of a group must have the same one.
	scheduler string
}

func (native) Name() job.Scheduler                { return job.Native }
func (native) GroupKind() schema.GroupVersionKind { return nativeKind }

// Group has no Workload: that is optional, and the scheduler needs nothing from it. Its
// priority field requires another feature gate, so only the pods have a priority; it has
// no fields for resources or a timeout.
func (native) Group(j *job.Job, labels map[string]string) Object {
	version, kind := nativeKind.ToAPIVersionAndKind()
	return &schedulingv1alpha2.PodGroup{
		TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name, Labels: maps.Clone(labels)},
		Spec: schedulingv1alpha2.PodGroupSpec{SchedulingPolicy: schedulingv1alpha2.PodGroupSchedulingPolicy{
			Gang: &schedulingv1alpha2.GangSchedulingPolicy{MinCount: j.Gang.MinMember},
		}},
	}
}

func (b native) Join(j *job.Job, template *corev1.PodTemplateSpec) {
	name := j.Name
	template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	setScheduler(template, b.scheduler)
}

func (native) MinMember(group Object) (int32, bool) {
	return intField(group, "spec", "schedulingPolicy", "gang", "minCount")
}
