// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// jobFailure is why a job has failed.
type jobFailure struct {
	reason  training.FailureReason
	message string
	// cause is the reason that Kubernetes reports for the failed pod.
	cause string
	// process that failed, if the launcher's report describes it.
	process *training.FailedProcess
	at      time.Time
	// precedence orders failures of the same second: a worker's failure causes the
	// launcher's, and the launcher's causes the deletion of workers.
	precedence int
	// stopped: no pod has failed; the operator stops the job now.
	stopped bool
	// needsConfirmation: an object was deleted, and the cache may not show yet that the
	// job was suspended or deleted.
	needsConfirmation bool
	// retryable: a restart may succeed.
	retryable bool
	// pod that failed, if it still exists.
	pod *corev1.Pod
}

const (
	precedenceWorker = iota
	precedenceLauncher
	precedenceDeleted
)

// firstFailure is the root cause of the job's failure: the earliest failure that the
// job cannot recover from. It is nil if there is none.
func (v *view) firstFailure(previous Previous) *jobFailure {
	if refused := v.refusal(); refused != nil {
		return refused
	}
	var failures []jobFailure
	for _, pod := range v.sortedWorkers() {
		if failure := v.workerFailure(pod); failure != nil {
			failures = append(failures, *failure)
		}
	}
	if failure := v.launcherFailure(); failure != nil {
		failures = append(failures, *failure)
	}
	if len(failures) == 0 {
		return v.missingPart(previous)
	}
	first := slices.MinFunc(failures, func(a, b jobFailure) int {
		return cmp.Or(cmp.Compare(a.at.Unix(), b.at.Unix()), cmp.Compare(a.precedence, b.precedence))
	})
	// Deleting the workload deletes its pods: then the workload is the root cause.
	if first.needsConfirmation && !v.observed.Workload.Exists {
		if missing := v.missingPart(previous); missing != nil {
			return missing
		}
	}
	if earlier := v.deletedBefore(&first, previous); earlier != nil {
		return earlier
	}
	return &first
}

// deletedBefore is the failure of the worker that was deleted first. The failed worker
// that was observed first may have been deleted later, but terminated sooner.
func (v *view) deletedBefore(first *jobFailure, previous Previous) *jobFailure {
	if !first.needsConfirmation || first.reason != training.FailureWorker || first.pod == nil || previous.Suspended {
		return nil
	}
	isOfThisAttempt := func(status training.WorkerPodStatus) bool { return status.Name == first.pod.Name }
	if slices.ContainsFunc(previous.WorkerPodStatuses, isOfThisAttempt) {
		for _, status := range previous.WorkerPodStatuses {
			if status.Name != "" && v.workers[status.Index] == nil {
				return &jobFailure{reason: training.FailureWorker, at: first.at, needsConfirmation: true, retryable: first.retryable, cause: reasonDeleted,
					message: fmt.Sprintf("Worker %d (pod %s) was deleted while the job ran. Start the job again.", status.Index, status.Name)}
			}
		}
	}
	deleted := slices.DeleteFunc(v.sortedWorkers(), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
	earliest := slices.MinFunc(append(deleted, first.pod), compareDeletions)
	if earliest == first.pod {
		return nil
	}
	return &jobFailure{reason: training.FailureWorker, at: first.at, needsConfirmation: true, retryable: first.retryable, pod: earliest, cause: reasonDeleted, message: v.problemMessage(deletionProblem(earliest))}
}

// compareDeletions orders deletions of the same second by resource version.
func compareDeletions(a, b *corev1.Pod) int {
	if order := cmp.Compare(deletedAt(a).Unix(), deletedAt(b).Unix()); order != 0 {
		return order
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil {
		return 0
	}
	return order
}

// refusal is the failure of a job with an object that the API server refused to create.
func (v *view) refusal() *jobFailure {
	refused := v.observed.Refusal
	if refused == nil || refused.Quota {
		return nil
	}
	failure := &jobFailure{at: v.observed.Now, reason: training.FailureLauncher}
	if refused.Role == training.RoleWorker {
		failure.reason = training.FailureWorker
	}
	failure.message = fmt.Sprintf("%s could not be created: %s. Change the job, or the policy that refuses it, and create the job again.", refused.Object, withoutPeriod(refused.Message))
	return failure
}

// reasonUnsupported is the failure of a job that asks for what Trireme cannot do. Our own
// kinds have no such jobs: admission refuses them.
const reasonUnsupported training.FailureReason = "Unsupported"

func (v *view) unsupported() *jobFailure {
	return &jobFailure{at: v.observed.Now, reason: reasonUnsupported, stopped: true, message: fmt.Sprintf(
		"Trireme cannot run %s %s as its runtime describes it: %s. Change the runtime, and create the job again.", v.job.Kind, v.job.Name, strings.Join(v.job.Unsupported, "; "))}
}

// withoutPeriod removes the full stop at the end, so that a caller can add its own.
func withoutPeriod(text string) string { return strings.TrimRight(text, ". \n") }

// workerFailure is the failure of the job because of this worker; nil if the worker has
// not failed.
func (v *view) workerFailure(pod *corev1.Pod) *jobFailure {
	problem := problemOf(pod)
	if problem == nil && pod.DeletionTimestamp != nil {
		problem = deletionProblem(pod)
	}
	if problem == nil || !v.isFatal(problem) {
		return nil
	}
	return v.failureOf(problem, training.FailureWorker, precedenceWorker)
}

// failureOf is the failure of the job because of a problem of one of its pods.
func (v *view) failureOf(problem *podProblem, reason training.FailureReason, precedence int) *jobFailure {
	deleted := problem.isDueToDeletion()
	if deleted {
		problem = deletionProblem(problem.pod)
	}
	if deleted && precedence == precedenceWorker {
		precedence = precedenceDeleted
	}
	return &jobFailure{
		reason: reason, message: v.problemMessage(problem), cause: problem.reason, at: problem.at, precedence: precedence, stopped: !problem.ended, needsConfirmation: deleted, pod: problem.pod,
		retryable: problem.ended && v.restartsAfter(precedence),
	}
}

// problemMessage names the pod, its problem and what to do.
func (v *view) problemMessage(problem *podProblem) string {
	return fmt.Sprintf("%s %s. %s", capitalized(v.podTitle(problem.pod)), withoutPeriod(problem.cause), problem.advice)
}

func capitalized(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// isFatal reports whether a problem of a pod fails the job.
func (v *view) isFatal(problem *podProblem) bool {
	switch {
	case problem.ended, problem.final:
		return true
	case problem.reason == crashLoop:
		return maxRestartCount(problem.pod) > v.job.Lifetime.BackoffLimit
	default:
		return v.observed.Now.Sub(problem.at) >= v.observed.Timeouts.Image
	}
}

func maxRestartCount(pod *corev1.Pod) (highest int32) {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		highest = max(highest, status.RestartCount)
	}
	return highest
}

// restartsAfter reports whether the job may restart after such a failure. A job whose
// restart keeps the workers cannot replace a failed one.
func (v *view) restartsAfter(precedence int) bool {
	return precedence == precedenceLauncher || v.job.Kind.Traits().RestartsAsWhole
}

// missingPart is the failure of a job whose workload or one of whose pods was deleted.
func (v *view) missingPart(previous Previous) *jobFailure {
	launcher := v.launcherName(previous)
	switch {
	case previous.Suspended, previous.QuotaWait != nil:
		// The operator itself deleted them.
		return nil
	case !v.observed.Workload.Exists && launcher != "":
		return &jobFailure{reason: training.FailureLauncher, at: v.observed.Now, needsConfirmation: true,
			message: fmt.Sprintf("The %s %s was deleted while the job ran, and with it the launcher (pod %s). Start the job again.",
				v.job.Kind.Traits().Workload, plan.NamesOf(v.job).Workload, launcher)}
	case v.launcher == nil && launcher == plan.PodName(v.job, training.RoleLauncher, 0, v.restart):
		return &jobFailure{reason: training.FailureLauncher, at: v.observed.Now, needsConfirmation: true, retryable: true,
			message: fmt.Sprintf("The launcher (pod %s) is missing: it was deleted, or its node was lost. Start the job again.", launcher)}
	}
	for _, status := range previous.WorkerPodStatuses {
		if status.Name == plan.PodName(v.job, training.RoleWorker, status.Index, v.restart) && v.workers[status.Index] == nil {
			return &jobFailure{reason: training.FailureWorker, at: v.observed.Now, needsConfirmation: true, retryable: v.restartsAfter(precedenceWorker),
				message: fmt.Sprintf("Worker %d (pod %s) is missing: it was deleted, or its node was lost. Start the job again.", status.Index, status.Name)}
		}
	}
	return nil
}

// launcherName is the name of the launcher's pod, even if the pod was deleted.
func (v *view) launcherName(previous Previous) string {
	switch {
	case v.launcher != nil:
		return v.launcher.Name
	case previous.LauncherPodStatus != nil:
		return previous.LauncherPodStatus.Name
	}
	return ""
}

func isFailureReason(text string) bool {
	return slices.Contains([]training.FailureReason{
		training.FailureGangSchedulingTimeout, training.FailureLauncher, training.FailureWorker, training.FailureSSHConnection,
		training.FailureMPIInitialization, training.FailureTraining, training.FailureResourceQuota,
	}, training.FailureReason(text))
}
