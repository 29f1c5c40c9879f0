// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// JobSetStatus writes the verdict into the status of a JobSet, as JobSet's own
// controller would: it counts child Jobs, and each role is one. Kueue reads from it
// whether pods are ready, whether any are left, and whether the job succeeded.
func (vd *Verdict) JobSetStatus(j *job.Job, set *jobset.JobSet, now metav1.Time) {
	status := &set.Status
	isSuspended := set.Spec.Suspend != nil && *set.Spec.Suspend
	if !isSuspended && vd.hasOnlyStarted() && len(status.ReplicatedJobsStatus) == 0 {
		return
	}
	earlier := status.ReplicatedJobsStatus
	status.ReplicatedJobsStatus = vd.childStatuses(j, isSuspended)
	if vd.Restart != nil {
		status.Restarts, status.RestartsCountTowardsMax = vd.Restart.Count, vd.Restart.Count
	}
	mark := func(kind jobset.JobSetConditionType, is bool, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: string(kind), Status: metav1.ConditionStatus(conditionStatus(is)), Reason: reason, Message: truncated(message), LastTransitionTime: now,
		})
	}
	wasSuspended := meta.FindStatusCondition(status.Conditions, string(jobset.JobSetSuspended)) != nil
	switch {
	case isSuspended:
		mark(jobset.JobSetSuspended, true, "SuspendedJobs", "jobset is suspended")
	case wasSuspended:
		mark(jobset.JobSetSuspended, false, "ResumeJobs", "jobset is resumed")
	}
	switch vd.Phase {
	case training.PhaseSucceeded:
		status.TerminalState = string(jobset.JobSetCompleted)
		markSucceeded(status.ReplicatedJobsStatus)
		mark(jobset.JobSetCompleted, true, "AllJobsCompleted", vd.completeCondition().Message)
	case training.PhaseFailed:
		status.TerminalState = string(jobset.JobSetFailed)
		mark(jobset.JobSetFailed, true, string(vd.FailureReason), vd.FailureMessage)
	default:
		return
	}
	// Pods that have finished did so, whether or not they still exist.
	for i := range status.ReplicatedJobsStatus {
		if now := &status.ReplicatedJobsStatus[i]; i < len(earlier) {
			now.Succeeded, now.Failed = max(now.Succeeded, earlier[i].Succeeded), max(now.Failed, earlier[i].Failed)
			now.Ready = min(now.Ready, 1-now.Succeeded)
		}
	}
}

// childStatuses are the statuses of the child Jobs, in the order of the JobSet.
func (vd *Verdict) childStatuses(j *job.Job, isSuspended bool) []jobset.ReplicatedJobStatus {
	if j.Set == nil {
		return []jobset.ReplicatedJobStatus{
			childStatus(training.RoleLauncher, j.Launcher.Replicas, vd.Launcher, isSuspended),
			childStatus(training.RoleWorker, j.Worker.Replicas, vd.Worker, isSuspended),
		}
	}
	var statuses []jobset.ReplicatedJobStatus
	for _, replicated := range j.Set.Jobs {
		switch replicated.Role {
		case training.RoleLauncher:
			statuses = append(statuses, childStatus(replicated.Name, j.Launcher.Replicas, vd.Launcher, isSuspended))
		case training.RoleWorker:
			statuses = append(statuses, childStatus(replicated.Name, j.Worker.Replicas, vd.Worker, isSuspended))
		default:
			var counts Counts
			if replicated.Step < len(vd.Steps) {
				counts = vd.Steps[replicated.Step]
			}
			// One success is enough, whatever happened to pods of earlier starts.
			counts.Succeeded = min(counts.Succeeded, 1)
			statuses = append(statuses, childStatus(replicated.Name, 1, counts, isSuspended))
		}
	}
	return statuses
}

// markSucceeded sets the status of the launcher's Job.
func markSucceeded(statuses []jobset.ReplicatedJobStatus) {
	for i := range statuses {
		if launcher := &statuses[i]; launcher.Name == training.RoleLauncher {
			launcher.Succeeded, launcher.Ready, launcher.Failed = 1, 0, 0
		}
	}
}

// hasOnlyStarted reports whether no pod of the job has been ready or has finished yet.
// Writing such a status costs the API server as much as creating a pod, and no client
// needs it: Kueue reads the status of jobs that it stops, but those start suspended and
// have a status already.
func (vd *Verdict) hasOnlyStarted() bool {
	isIdle := func(counts Counts) bool { return counts.Ready == 0 && counts.Succeeded == 0 && counts.Failed == 0 }
	return vd.Restart == nil && vd.Phase == training.PhasePending && isIdle(vd.Launcher) && isIdle(vd.Worker)
}

// childStatus is the status of a role's only child Job. A succeeded Job does not count
// as ready, because Kueue adds up both numbers.
func childStatus(role string, pods int32, counts Counts, suspended bool) jobset.ReplicatedJobStatus {
	oneIf := func(is bool) int32 {
		if is {
			return 1
		}
		return 0
	}
	succeeded := counts.Succeeded >= pods
	return jobset.ReplicatedJobStatus{
		Name: role, Ready: oneIf(!succeeded && counts.Ready+counts.Succeeded >= pods), Active: oneIf(counts.Active > 0),
		Succeeded: oneIf(succeeded), Failed: oneIf(counts.Failed > 0), Suspended: oneIf(suspended),
	}
}

// BatchJobStatus writes the verdict into the status of the launcher's batch Job, as
// Kubernetes' own controller would. It leaves out the number of ready pods: no client
// waits for it, and it would cost one more write. A finished Job never changes.
func (vd *Verdict) BatchJobStatus(batch *batchv1.Job, now metav1.Time) {
	status := &batch.Status
	if isJobFinished(status) {
		return
	}
	status.Active = vd.Launcher.Active
	if vd.Restart != nil {
		status.Failed = max(status.Failed, vd.Restart.Count)
	}
	isFinal := vd.Phase == training.PhaseSucceeded || vd.Phase == training.PhaseFailed
	if status.StartTime == nil && (status.Active > 0 || isFinal) {
		status.StartTime = &now
	}
	// The API server refuses to finish a Job while one of its pods is active.
	if !isFinal || status.Active > 0 {
		return
	}
	end := func(kind batchv1.JobConditionType, reason, message string) {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: truncated(message), LastProbeTime: now, LastTransitionTime: now,
		})
	}
	if vd.Phase == training.PhaseSucceeded {
		status.Succeeded, status.CompletionTime = 1, &now
		end(batchv1.JobSuccessCriteriaMet, "CompletionsReached", vd.completeCondition().Message)
		end(batchv1.JobComplete, "CompletionsReached", vd.completeCondition().Message)
		return
	}
	status.Failed++
	end(batchv1.JobFailureTarget, string(vd.FailureReason), vd.FailureMessage)
	end(batchv1.JobFailed, string(vd.FailureReason), vd.FailureMessage)
}

func isJobFinished(status *batchv1.JobStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(condition batchv1.JobCondition) bool {
		return (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue
	})
}
