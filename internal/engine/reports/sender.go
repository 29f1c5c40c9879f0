// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// Sender is the pod that a token is bound to, as the API server says.
type Sender struct {
	Namespace string
	// ServiceAccount is the full name of the token's user.
	ServiceAccount string
	Pod            string
	PodUID         types.UID
}

// Target is a job that is reported for, and what the operator knows about it.
type Target struct {
	Namespace, Name string
	// Restart is the number of the job's current start.
	Restart int32
	// Pods is how many pods the job has.
	Pods int
	// Finished jobs accept no reports.
	Finished bool
	// Pod is the sender's pod; nil if it does not exist.
	Pod *corev1.Pod
	// Owned: the pod belongs to this job, by the UIDs of its owners.
	Owned bool
	// RestartsAsWhole: pods of earlier starts belong to no current start.
	RestartsAsWhole bool
}

// Refusal is why a sender may not report for a job.
type Refusal string

const (
	// RefusedUnbound: the token is not bound to a pod.
	RefusedUnbound Refusal = "Unbound"
	// RefusedOtherNamespace: the pod is in another namespace.
	RefusedOtherNamespace Refusal = "OtherNamespace"
	// RefusedUnknownPod: the pod does not exist, or not any more.
	RefusedUnknownPod Refusal = "UnknownPod"
	// RefusedOtherJob: the pod does not belong to the job.
	RefusedOtherJob Refusal = "OtherJob"
	// RefusedOldPod: the pod belongs to an earlier start of the job.
	RefusedOldPod Refusal = "OldPod"
	// RefusedRole: only the launcher reports the activity of all ranks.
	RefusedRole Refusal = "Role"
	// RefusedFinished: the job has finished.
	RefusedFinished Refusal = "Finished"
)

// Message says why a sender was refused.
func (r Refusal) Message(sender Sender, target Target) string {
	switch r {
	case RefusedUnbound:
		return "the token is not bound to a pod: use the token that is mounted in the job's pods"
	case RefusedOtherNamespace:
		return fmt.Sprintf("pod %s/%s is not in namespace %s", sender.Namespace, sender.Pod, target.Namespace)
	case RefusedUnknownPod:
		return fmt.Sprintf("pod %s/%s of this token does not exist", sender.Namespace, sender.Pod)
	case RefusedOldPod:
		return fmt.Sprintf("pod %s belongs to an earlier start of job %s", sender.Pod, target.Name)
	case RefusedRole:
		return fmt.Sprintf("pod %s is not the launcher of job %s; only the launcher reports for all ranks", sender.Pod, target.Name)
	case RefusedFinished:
		return fmt.Sprintf("job %s has finished", target.Name)
	default:
		return fmt.Sprintf("pod %s does not belong to job %s", sender.Pod, target.Name)
	}
}

// Refused decides whether a sender may report for a job; empty if it may. forAll is a
// report about all ranks.
func Refused(sender Sender, target Target, forAll bool) Refusal {
	pod := target.Pod
	switch {
	case sender.Pod == "" || sender.PodUID == "":
		return RefusedUnbound
	case sender.Namespace != target.Namespace:
		return RefusedOtherNamespace
	case pod == nil || pod.UID != sender.PodUID || pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodRunning:
		return RefusedUnknownPod
	case !target.Owned:
		return RefusedOtherJob
	}
	isLauncher := pod.Labels[training.LabelReplicaType] == training.RoleLauncher
	switch {
	case (isLauncher || target.RestartsAsWhole) && plan.RestartOf(pod) != target.Restart:
		return RefusedOldPod
	case forAll && !isLauncher:
		return RefusedRole
	case target.Finished:
		return RefusedFinished
	}
	return ""
}
