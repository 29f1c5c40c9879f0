package gang

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// nativeKind is the shape of Kubernetes 1.36, the only release that serves this
// version. The others would each be a scheduler beside this one: 1.35 has a Workload of v1alpha1 and the pods'
// spec.workloadRef; 1.37 has this PodGroup as v1beta1, whose status has other
// conditions.
var nativeKind = schedulingv1alpha2.SchemeGroupVersion.WithKind(podGroup)

var nativeScheduler = scheduler{
	name:    job.Native,
	backend: func(podScheduler string) Backend { return native{podScheduler} },
	remedy:  "run Kubernetes 1.36 with that API and the feature gates GenericWorkload and GangScheduling turned on",
}

// native is the gang scheduling of kube-scheduler itself.
type native struct {
	// scheduler that the job names; empty is Kubernetes' own. All pods of a group
	// must have the same.
	scheduler string
}

func (native) Name() job.Scheduler                { return job.Native }
func (native) GroupKind() schema.GroupVersionKind { return nativeKind }

// Group stands alone: a Workload to make it from is optional, and tells the
// scheduler nothing more. Its field for a priority is refused without another
// feature gate, so the pods carry it; it has none for resources or a timeout.
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
