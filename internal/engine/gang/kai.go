// SPDX-License-Identifier: Apache-2.0

package gang

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	kaiPodGroup = "pod-group-name"
	kaiQueue    = "kai.scheduler/queue"
	// kaiDefaultQueue is the queue that KAI's chart creates. KAI schedules no pod
	// without a queue.
	kaiDefaultQueue = "default-queue"
)

var kaiKind = schema.GroupVersionKind{Group: "scheduling.run.ai", Version: "v2alpha2", Kind: podGroup}

var kaiScheduler = scheduler{
	name: job.KAI, podScheduler: "kai-scheduler", hasQueues: true,
	kinds:   []schema.GroupVersionKind{kaiKind},
	backend: func(_ schema.GroupVersionKind, podScheduler string) Backend { return kai{podScheduler} },
	remedy:  "install the KAI scheduler",
}

// kai is NVIDIA's KAI scheduler. The job's own PodGroup replaces the one that KAI's
// podgrouper would create, which does not know the owner kinds of these pods.
type kai struct {
	scheduler string
}

func (kai) Name() job.Scheduler                { return job.KAI }
func (kai) GroupKind() schema.GroupVersionKind { return kaiKind }

// Group has no timeout and no resources: the kind has no fields for them.
func (kai) Group(j *job.Job, labels map[string]string) Object {
	spec := map[string]any{"minMember": int64(j.Gang.MinMember), "queue": kaiQueueOf(j)}
	if j.Gang.PriorityClass != "" {
		spec["priorityClassName"] = j.Gang.PriorityClass
	}
	return customGroup(kaiKind, j, labels, spec)
}

func (b kai) Join(j *job.Job, template *corev1.PodTemplateSpec) {
	annotate(template, kaiPodGroup, j.Name)
	label(template, kaiQueue, kaiQueueOf(j))
	setScheduler(template, b.scheduler)
}

func (kai) MinMember(group Object) (int32, bool) {
	return intField(group, "spec", "minMember")
}

func kaiQueueOf(j *job.Job) string {
	if j.Gang.Queue != "" {
		return j.Gang.Queue
	}
	return kaiDefaultQueue
}
