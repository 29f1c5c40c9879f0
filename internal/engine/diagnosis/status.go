// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"regexp"
	"slices"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// FromTrainJob reads the status of a TrainJob.
func FromTrainJob(trainJob *v2alpha1.TrainJob) Previous {
	status := &trainJob.Status
	previous := Previous{
		Progress: status.Progress, StartTime: status.StartTime, CompletionTime: status.CompletionTime, Submitted: trainJob.CreationTimestamp,
	}
	if suspended := meta.FindStatusCondition(status.Conditions, v2alpha1.ConditionSuspended); suspended != nil && suspended.Status == metav1.ConditionTrue {
		previous.Suspended, previous.Queued = true, suspended.Reason == reasonQueued
	}
	if stalled := meta.FindStatusCondition(status.Conditions, training.ConditionStalled); stalled != nil {
		previous.Stalled = Condition{Yes: stalled.Status == metav1.ConditionTrue, Reason: stalled.Reason, Message: stalled.Message}
	}
	for _, end := range []string{v2alpha1.ConditionTrainingComplete, v2alpha1.ConditionFailed} {
		if condition := meta.FindStatusCondition(status.Conditions, end); condition != nil && condition.Status == metav1.ConditionTrue {
			previous.FinishRecorded = condition.LastTransitionTime
		}
	}
	return previous
}

// FromMPIJob reads the status of an MPIJob.
func FromMPIJob(mpiJob *v2beta1.MPIJob) Previous {
	status := &mpiJob.Status
	previous := Previous{
		Progress: status.Progress, StartTime: status.StartTime, CompletionTime: status.CompletionTime, Submitted: mpiJob.CreationTimestamp,
	}
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		if condition.Type == v2beta1.JobStalled {
			previous.Stalled = Condition{Yes: condition.Status == corev1.ConditionTrue, Reason: condition.Reason, Message: condition.Message}
		}
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case v2beta1.JobSuspended:
			previous.Suspended, previous.Queued = true, condition.Reason == reasonQueued
		case v2beta1.JobSucceeded, v2beta1.JobFailed:
			previous.FinishRecorded = condition.LastTransitionTime
		}
	}
	return previous
}

// TrainJobStatus writes the verdict into a TrainJob's status.
func (vd *Verdict) TrainJobStatus(j *job.Job, status *v2alpha1.TrainJobStatus, generation int64, now metav1.Time) {
	wasFinished := status.Phase == training.PhaseSucceeded || status.Phase == training.PhaseFailed
	status.Progress, status.StartTime, status.CompletionTime = vd.Progress, vd.StartTime, vd.CompletionTime
	status.ObservedGeneration = generation
	if j.RuntimeDigest != "" {
		status.RuntimeDigest = j.RuntimeDigest
	}
	if wasFinished {
		return
	}
	type named struct {
		name string
		Condition
	}
	conditions := []named{
		{v2alpha1.ConditionGangScheduling, vd.Gang},
		{v2alpha1.ConditionWorkersReady, vd.WorkersReady},
		{v2alpha1.ConditionLauncherReady, vd.LauncherReady},
		{v2alpha1.ConditionTrainingComplete, vd.completeCondition()},
		{v2alpha1.ConditionSuspended, vd.suspendedCondition()},
		{v2alpha1.ConditionFailed, vd.failedCondition()},
	}
	if vd.Stalled.Yes || meta.FindStatusCondition(status.Conditions, training.ConditionStalled) != nil {
		conditions = append(conditions, named{training.ConditionStalled, vd.stalledCondition()})
	}
	for _, condition := range conditions {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: condition.name, Status: metav1.ConditionStatus(conditionStatus(condition.Yes)), Reason: conditionReason(condition.Reason), Message: truncated(condition.Message),
			ObservedGeneration: generation, LastTransitionTime: now,
		})
	}
}

// MPIJobStatus writes the verdict into an MPIJob's status, with the conditions
// and the counts that Kueue and mpi-operator's users read.
func (vd *Verdict) MPIJobStatus(j *job.Job, status *v2beta1.MPIJobStatus, generation int64, now metav1.Time) {
	wasFinished := status.Phase == training.PhaseSucceeded || status.Phase == training.PhaseFailed
	status.Progress, status.StartTime, status.CompletionTime = vd.Progress, vd.StartTime, vd.CompletionTime
	status.ObservedGeneration = generation
	earlier := status.ReplicaStatuses
	status.ReplicaStatuses = map[v2beta1.MPIReplicaType]*v2beta1.ReplicaStatus{
		v2beta1.MPIReplicaTypeLauncher: replicaStatus(j, training.RoleLauncher, vd.Launcher),
		v2beta1.MPIReplicaTypeWorker:   replicaStatus(j, training.RoleWorker, vd.Worker),
	}
	keepLabelSelectors(status.ReplicaStatuses, earlier)
	if wasFinished {
		keepFinished(status.ReplicaStatuses, earlier)
		return
	}
	set := func(kind v2beta1.JobConditionType, condition Condition) {
		setCondition(&status.Conditions, kind, condition, now)
	}
	set(v2beta1.JobCreated, Condition{Yes: true, Reason: "MPIJobCreated", Message: "The job was created"})
	wasSuspended := slices.ContainsFunc(status.Conditions, func(condition v2beta1.JobCondition) bool { return condition.Type == v2beta1.JobSuspended })
	if vd.Suspension.Yes && vd.Suspension.Reason == reasonQueued {
		set(v2beta1.JobSuspended, vd.Suspension)
	} else if vd.Suspension.Yes {
		set(v2beta1.JobSuspended, Condition{Yes: true, Reason: "MPIJobSuspended", Message: vd.Suspension.Message})
	} else if wasSuspended {
		set(v2beta1.JobSuspended, Condition{Reason: "MPIJobResumed", Message: "The job is not suspended"})
	}
	wasRestarted := slices.ContainsFunc(status.Conditions, func(condition v2beta1.JobCondition) bool { return condition.Type == v2beta1.JobRestarting })
	if vd.Stage == plan.Restarting {
		set(v2beta1.JobRestarting, Condition{Yes: true, Reason: "MPIJobRestarting", Message: vd.Waiting.Message})
	} else if wasRestarted {
		set(v2beta1.JobRestarting, Condition{Reason: "MPIJobRestarted", Message: "The job is not being restarted"})
	}
	wasStalled := slices.ContainsFunc(status.Conditions, func(condition v2beta1.JobCondition) bool { return condition.Type == v2beta1.JobStalled })
	if vd.Stalled.Yes || wasStalled {
		set(v2beta1.JobStalled, vd.stalledCondition())
	}
	set(v2beta1.JobPending, vd.pendingCondition())
	set(v2beta1.JobRunning, vd.runningCondition())
	switch vd.Phase {
	case training.PhaseSucceeded:
		set(v2beta1.JobSucceeded, Condition{Yes: true, Reason: "MPIJobSucceeded", Message: vd.completeCondition().Message})
	case training.PhaseFailed:
		set(v2beta1.JobFailed, vd.failedCondition())
	}
}

func replicaStatus(j *job.Job, role string, counts Counts) *v2beta1.ReplicaStatus {
	return &v2beta1.ReplicaStatus{
		Active: counts.Active, Succeeded: counts.Succeeded, Failed: counts.Failed,
		Selector: labels.SelectorFromSet(plan.RoleSelector(j, role)).String(),
	}
}

// keepLabelSelectors keeps a field that only older operators write.
func keepLabelSelectors(now, earlier map[v2beta1.MPIReplicaType]*v2beta1.ReplicaStatus) {
	for role, counts := range now {
		if before := earlier[role]; before != nil {
			counts.LabelSelector = before.LabelSelector
		}
	}
}

// keepFinished keeps the counts of finished pods that have been deleted since.
func keepFinished(now, earlier map[v2beta1.MPIReplicaType]*v2beta1.ReplicaStatus) {
	for role, counts := range now {
		if before := earlier[role]; before != nil {
			counts.Succeeded, counts.Failed = max(counts.Succeeded, before.Succeeded), max(counts.Failed, before.Failed)
		}
	}
}

// setCondition adds or updates a condition. One that stays the same keeps its times.
func setCondition(conditions *[]v2beta1.JobCondition, kind v2beta1.JobConditionType, condition Condition, now metav1.Time) {
	wanted := v2beta1.JobCondition{
		Type: kind, Status: conditionStatus(condition.Yes), Reason: condition.Reason, Message: truncated(condition.Message), LastUpdateTime: now, LastTransitionTime: now,
	}
	index := slices.IndexFunc(*conditions, func(existing v2beta1.JobCondition) bool { return existing.Type == kind })
	if index < 0 {
		*conditions = append(*conditions, wanted)
		return
	}
	current := &(*conditions)[index]
	if current.Status == wanted.Status {
		wanted.LastTransitionTime = current.LastTransitionTime
		if current.Reason == wanted.Reason && current.Message == wanted.Message {
			return
		}
	}
	*current = wanted
}

func (vd *Verdict) completeCondition() Condition {
	switch vd.Phase {
	case training.PhaseSucceeded:
		return Condition{Yes: true, Reason: "Succeeded", Message: "The launcher completed successfully"}
	case training.PhaseFailed:
		return vd.negated(vd.failedCondition())
	case training.PhaseRunning:
		return Condition{Reason: "Running", Message: "Launcher and workers are running"}
	default:
		return vd.negated(vd.Waiting)
	}
}

func (vd *Verdict) failedCondition() Condition {
	if vd.Phase == training.PhaseFailed {
		return Condition{Yes: true, Reason: string(vd.FailureReason), Message: vd.FailureMessage}
	}
	return Condition{Reason: "NotFailed", Message: "The job has not failed"}
}

// stalledCondition is that of a job that stalls or has stalled.
func (vd *Verdict) stalledCondition() Condition {
	if vd.Stalled.Reason == "" {
		return Condition{Reason: reasonProgressing, Message: "Nothing is known about the ranks"}
	}
	return vd.Stalled
}

func (vd *Verdict) suspendedCondition() Condition {
	if vd.Suspension.Yes {
		return vd.Suspension
	}
	return Condition{Reason: "NotSuspended", Message: "The job is not suspended"}
}

func (vd *Verdict) pendingCondition() Condition {
	if vd.Phase == training.PhasePending {
		return Condition{Yes: true, Reason: orElse(vd.Waiting.Reason, "Waiting"), Message: vd.Waiting.Message}
	}
	return Condition{Reason: string(vd.Phase), Message: vd.completeCondition().Message}
}

func (vd *Verdict) runningCondition() Condition {
	if vd.Phase == training.PhaseRunning {
		return Condition{Yes: true, Reason: "MPIJobRunning", Message: "Launcher and workers are running"}
	}
	return Condition{Reason: string(vd.Phase), Message: vd.completeCondition().Message}
}

// negated is a condition that is not true, with the same reason.
func (vd *Verdict) negated(condition Condition) Condition {
	condition.Yes, condition.Reason = false, orElse(condition.Reason, "Waiting")
	return condition
}

func conditionStatus(is bool) corev1.ConditionStatus {
	if is {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// validReason is the pattern that the API server requires for a condition's reason.
var validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// conditionReason is the reason if the API server accepts it. The reasons of pods come
// from kubelets and container runtimes and may have any form.
func conditionReason(reason string) string {
	if len(reason) > maxReason || !validReason.MatchString(reason) {
		return "Failed"
	}
	return reason
}

// maxReason and maxMessage are the API server's limits for conditions, in bytes.
const (
	maxReason  = 1024
	maxMessage = 32 * 1024
)

// truncated shortens a message to maxMessage without splitting a character.
func truncated(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end]
}
