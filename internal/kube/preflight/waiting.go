// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// WaitCause is what a job waits for.
type WaitCause string

// All causes, in the order in which they are resolved: a job in a queue has no pods, so
// images matter only after it.
const (
	// WaitOperator: no operator processes the job.
	WaitOperator WaitCause = "Operator"
	// WaitSuspended: a user has suspended the job.
	WaitSuspended WaitCause = "Suspended"
	// WaitBlocked: something is missing that only a user can add, such as the runtime.
	WaitBlocked WaitCause = "Blocked"
	// WaitQueueUnmanaged: no Kueue manages the queue or the job.
	WaitQueueUnmanaged WaitCause = "QueueUnmanaged"
	// WaitQueueMissing and WaitQueueInactive: the LocalQueue does not exist, or it or its
	// ClusterQueue admits nothing.
	WaitQueueMissing  WaitCause = "QueueMissing"
	WaitQueueInactive WaitCause = "QueueInactive"
	// WaitDeactivated: the job's Workload is deactivated.
	WaitDeactivated WaitCause = "Deactivated"
	// WaitPreempted and WaitEvicted: Kueue took the job's quota back, in favor of another
	// job or for another reason.
	WaitPreempted WaitCause = "Preempted"
	WaitEvicted   WaitCause = "Evicted"
	// WaitQueue: the job has a position in its queue.
	WaitQueue WaitCause = "Queue"
	// WaitQuota: a ResourceQuota of the namespace refuses pods.
	WaitQuota WaitCause = "Quota"
	// WaitRestart: the job failed, and its restart is due later.
	WaitRestart WaitCause = "Restart"
	// WaitVolumeMissing and WaitVolume: a PVC or its StorageClass does not exist, or the
	// PVC has no volume yet.
	WaitVolumeMissing WaitCause = "VolumeMissing"
	WaitVolume        WaitCause = "Volume"
	// WaitGates: scheduling gates keep pods from being scheduled.
	WaitGates WaitCause = "SchedulingGates"
	// WaitNodes: pods of the gang have no node.
	WaitNodes WaitCause = "Nodes"
	// WaitImageFailing and WaitImage: an image cannot be pulled, or is being pulled.
	WaitImageFailing WaitCause = "ImageFailing"
	// WaitContainer: a container cannot start, or restarts again and again.
	WaitContainer WaitCause = "Container"
	WaitImage     WaitCause = "Image"
	// WaitInitializer: the initializer fetches the dataset and the model.
	WaitInitializer WaitCause = "Initializer"
	// WaitWorkers: pods are scheduled, and not all workers are ready.
	WaitWorkers WaitCause = "Workers"
	// WaitGate: the launcher waits until it can reach every worker.
	WaitGate WaitCause = "Gate"
	// WaitUnknown: the operator says what the job waits for, and no check explains it.
	WaitUnknown WaitCause = "Unknown"
)

// waitOrder is the order in which causes are resolved.
var waitOrder = []WaitCause{
	WaitOperator, WaitSuspended, WaitBlocked, WaitQueueUnmanaged, WaitQueueMissing, WaitQueueInactive, WaitDeactivated, WaitPreempted, WaitEvicted, WaitQueue,
	WaitQuota, WaitRestart, WaitVolumeMissing, WaitVolume, WaitGates, WaitNodes, WaitImageFailing, WaitContainer, WaitImage, WaitInitializer,
	WaitWorkers, WaitGate, WaitUnknown,
}

// Waiting is the one answer to why a job does not run yet: the first thing to do.
type Waiting struct {
	Cause WaitCause `json:"cause"`
	// Since is when the job began to wait for it, if that is known.
	Since *metav1.Time `json:"since,omitempty"`
	// Object is what the job waits for, as kubectl names it.
	Object string `json:"object,omitempty"`
	// Message says what the job waits for, in a sentence or two.
	Message string `json:"message"`
	// Remedy is the command or the edit that helps; empty if waiting is enough.
	Remedy string `json:"remedy,omitempty"`
	// MayStart is when the job may start at the earliest, if that is known.
	MayStart *metav1.Time `json:"mayStart,omitempty"`
	// Queue is set for a job that waits in a queue.
	Queue *QueueState `json:"queue,omitempty"`
	// Gang is set for a job whose pods are not all scheduled.
	Gang *GangState `json:"gang,omitempty"`
	// Image is the image that cannot be pulled or is being pulled.
	Image string `json:"image,omitempty"`
}

// QueueState is the place of a job in its LocalQueue.
type QueueState struct {
	Name         string `json:"name"`
	ClusterQueue string `json:"clusterQueue,omitempty"`
	// Position is 1 for the job that Kueue tries to admit first; Length is how many wait.
	Position int `json:"position,omitempty"`
	Length   int `json:"length,omitempty"`
	// Ahead are the jobs that are tried before this one, Admitted those that have quota.
	Ahead    []string `json:"ahead,omitempty"`
	Admitted []string `json:"admitted,omitempty"`
	// Lacks is Kueue's message about what the job needs and the queue does not have.
	Lacks string `json:"lacks,omitempty"`
}

// GangState is how many pods of a job have a node.
type GangState struct {
	Scheduled int `json:"scheduled"`
	Pods      int `json:"pods"`
	// Pod is the first pod without a node, Lacks what nodes lack for it.
	Pod   string `json:"pod,omitempty"`
	Lacks string `json:"lacks,omitempty"`
}

// WaitingFor returns what a job waits for first; nil if it does not wait. The findings
// are those of Diagnose.
func WaitingFor(facts *Facts, findings []Finding) *Waiting {
	if !facts.waits() {
		return nil
	}
	var first *Waiting
	consider := func(candidate *Waiting) {
		if candidate != nil && (first == nil || slices.Index(waitOrder, candidate.Cause) < slices.Index(waitOrder, first.Cause)) {
			first = candidate
		}
	}
	for i := range findings {
		consider(findings[i].answer())
	}
	for _, find := range []func(*Facts, []Finding) *Waiting{waitForVolume, waitForNodes, waitForInitializer, waitForWorkers, waitForGate, waitUnexplained} {
		consider(find(facts, findings))
	}
	if first.Since.IsZero() {
		first.Since = nil
	}
	return first
}

// waits reports whether the job has not begun its work: its pods are not all running, or
// its launcher has not reached all workers.
func (facts *Facts) waits() bool {
	switch {
	case facts.elsewhere(), facts.OfMPIOperator, facts.hasFailed(), facts.hasSucceeded():
		return false
	case facts.Previous.Phase == training.PhaseRunning:
		return !facts.reached(training.StepWorkersReached) && facts.launcherWaits()
	default:
		return true
	}
}

// answer is a finding as the answer to why the job waits; nil if the job does not wait
// for it.
func (f *Finding) answer() *Waiting {
	if f.waits == nil {
		return nil
	}
	answer := *f.waits
	answer.Message, answer.Remedy = sentences(f.Title, f.Cause), f.Fix
	if answer.Object == "" {
		answer.Object = f.Object
	}
	return &answer
}
