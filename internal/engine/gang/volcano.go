// SPDX-License-Identifier: Apache-2.0

package gang

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	// Volcano's scheduler reads volcanoGroup; its other components and users' tools read
	// volcanoToolsGroup.
	volcanoGroup      = "scheduling.k8s.io/group-name"
	volcanoToolsGroup = "scheduling.volcano.sh/group-name"
	volcanoQueue      = "scheduling.volcano.sh/queue-name"
)

var volcanoKind = schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: podGroup}

var volcanoScheduler = scheduler{
	name: job.Volcano, podScheduler: "volcano", hasQueues: true,
	kinds:   []schema.GroupVersionKind{volcanoKind},
	backend: func(_ schema.GroupVersionKind, podScheduler string) Backend { return volcano{podScheduler} },
	remedy:  "install Volcano",
}

// volcano is the Volcano scheduler.
type volcano struct {
	scheduler string
}

func (volcano) Name() job.Scheduler                { return job.Volcano }
func (volcano) GroupKind() schema.GroupVersionKind { return volcanoKind }

// Group has no timeout: in Volcano a group may wait forever.
func (volcano) Group(j *job.Job, labels map[string]string) Object {
	spec := map[string]any{"minMember": int64(j.Gang.MinMember)}
	if resources := minResources(j); len(resources) > 0 {
		spec["minResources"] = resources
	}
	if j.Gang.Queue != "" {
		spec["queue"] = j.Gang.Queue
	}
	if j.Gang.PriorityClass != "" {
		spec["priorityClassName"] = j.Gang.PriorityClass
	}
	return customGroup(volcanoKind, j, labels, spec)
}

func (b volcano) Join(j *job.Job, template *corev1.PodTemplateSpec) {
	annotate(template, volcanoGroup, j.Name)
	annotate(template, volcanoToolsGroup, j.Name)
	if j.Gang.Queue != "" {
		annotate(template, volcanoQueue, j.Gang.Queue)
	}
	setScheduler(template, b.scheduler)
}

func (volcano) MinMember(group Object) (int32, bool) {
	return intField(group, "spec", "minMember")
}
