package gang

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// DefaultCoschedulerName is what the chart of scheduler-plugins calls its
// scheduler.
const DefaultCoschedulerName = "scheduler-plugins-scheduler"

const (
	coschedulingLabel = "scheduling.x-k8s.io/pod-group"
	// longestPermit is how long kube-scheduler lets any plugin hold a pod, in
	// seconds. The plugin holds pods that it has a node for until the others have
	// one; then all release it and retry. It never fails a job: the operator does.
	maxPermitSeconds = 15 * 60
)

var coschedulingKind = schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: podGroup}

var coschedulingScheduler = scheduler{
	name: job.Coscheduling, podScheduler: DefaultCoschedulerName,
	backend: func(podScheduler string) Backend { return coscheduling{podScheduler} },
	remedy:  "install scheduler-plugins with its CRDs",
}

// coscheduling is the plugin of that name of scheduler-plugins.
type coscheduling struct {
	// scheduler has a profile with the plugin.
	scheduler string
}

func (coscheduling) Name() job.Scheduler                { return job.Coscheduling }
func (coscheduling) GroupKind() schema.GroupVersionKind { return coschedulingKind }

// Group has no priority: the kind has no field for one, the pods carry it.
func (coscheduling) Group(j *job.Job, labels map[string]string) Object {
	spec := map[string]any{"minMember": int64(j.Gang.MinMember)}
	if resources := minResources(j); len(resources) > 0 {
		spec["minResources"] = resources
	}
	// 0 means for ever to us, and to the plugin that it shall take its own.
	if timeout := j.Gang.TimeoutSeconds; timeout > 0 {
		spec["scheduleTimeoutSeconds"] = int64(min(timeout, maxPermitSeconds))
	}
	return customGroup(coschedulingKind, j, labels, spec)
}

func (b coscheduling) Join(j *job.Job, template *corev1.PodTemplateSpec) {
	label(template, coschedulingLabel, j.Name)
	setScheduler(template, b.scheduler)
}

func (coscheduling) MinMember(group Object) (int32, bool) {
	return intField(group, "spec", "minMember")
}
