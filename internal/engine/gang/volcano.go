package gang

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	// volcanoScheduler is the name that Volcano's scheduler has unless it is
	// started with another.
	volcanoScheduler = "volcano"
	// volcanoGroup is what Volcano's scheduler reads, volcanoOwnGroup what its
	// other parts and its users' tools do.
	volcanoGroup    = "scheduling.k8s.io/group-name"
	volcanoOwnGroup = "scheduling.volcano.sh/group-name"
	volcanoQueue    = "scheduling.volcano.sh/queue-name"
)

var volcanoKind = schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: podGroup}

// volcano is the scheduler of that name.
type volcano struct {
	scheduler string
}

func (volcano) Name() job.Scheduler                { return job.Volcano }
func (volcano) GroupKind() schema.GroupVersionKind { return volcanoKind }

// Group has no timeout: Volcano lets a group wait for ever.
func (volcano) Group(made *job.Job, labels map[string]string) Object {
	spec := map[string]any{"minMember": int64(made.Gang.MinMember)}
	if resources := minResources(made); len(resources) > 0 {
		spec["minResources"] = resources
	}
	if made.Gang.Queue != "" {
		spec["queue"] = made.Gang.Queue
	}
	if made.Gang.PriorityClass != "" {
		spec["priorityClassName"] = made.Gang.PriorityClass
	}
	return customGroup(volcanoKind, made, labels, spec)
}

func (backend volcano) Join(made *job.Job, template *corev1.PodTemplateSpec) {
	annotate(template, volcanoGroup, made.Name)
	annotate(template, volcanoOwnGroup, made.Name)
	if made.Gang.Queue != "" {
		annotate(template, volcanoQueue, made.Gang.Queue)
	}
	schedule(template, backend.scheduler)
}

func (volcano) MinMember(group Object) (int32, bool) {
	return memberField(group, "spec", "minMember")
}
