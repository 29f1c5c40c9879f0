// SPDX-License-Identifier: Apache-2.0

package gang

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// DefaultCoschedulerName is the scheduler's name in the Helm chart of scheduler-plugins.
const DefaultCoschedulerName = "scheduler-plugins-scheduler"

const (
	coschedulingLabel = "scheduling.x-k8s.io/pod-group"
	// maxPermitSeconds is how long kube-scheduler lets a plugin hold a pod. The plugin
	// holds pods that have a node until the others have one too; on timeout all pods
	// release their nodes and retry. The plugin never fails a job: the operator does.
	maxPermitSeconds = 15 * 60
)

var coschedulingKind = schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: podGroup}

var coschedulingScheduler = scheduler{
	name: job.Coscheduling, podScheduler: DefaultCoschedulerName,
	kinds:   []schema.GroupVersionKind{coschedulingKind},
	backend: func(_ schema.GroupVersionKind, podScheduler string) Backend { return coscheduling{podScheduler} },
	remedy:  "install scheduler-plugins with its CRDs",
}

// coscheduling is the plugin Coscheduling of scheduler-plugins.
type coscheduling struct {
	// scheduler is the name of a scheduler with this plugin.
	scheduler string
}

func (coscheduling) Name() job.Scheduler                { return job.Coscheduling }
func (coscheduling) GroupKind() schema.GroupVersionKind { return coschedulingKind }

// Group has no priority: the kind has no field for it, but the pods have one.
func (coscheduling) Group(j *job.Job, labels map[string]string) Object {
	spec := map[string]any{"minMember": int64(j.Gang.MinMember)}
	if resources := minResources(j); len(resources) > 0 {
		spec["minResources"] = resources
	}
	// Here 0 means no timeout; for the plugin it means its default.
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
