// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

const maxRestartPause = 6 * time.Minute

// reasonRestarting is the reason of conditions while a failed job waits for its restart.
const reasonRestarting = "Restarting"

// failOrRestart restarts the job if the failure and the backoff limit allow it, and
// fails it otherwise.
func (v *view) failOrRestart(verdict *Verdict, previous Previous, failure *jobFailure) {
	if !failure.retryable || v.restart >= v.job.Lifetime.BackoffLimit || v.isDeadlineExceeded(previous.StartTime) {
		v.fail(verdict, failure)
		return
	}
	verdict.Restart = &training.Restart{
		Count: v.restart + 1, Reason: failure.reason, Message: failure.message,
		DueTime: metav1.NewTime(v.observed.Now.Add(restartPause(v.observed.Timeouts.Restart, v.restart)).Truncate(time.Second)),
	}
	v.restarting(verdict, previous)
}

// restartPause is how long a job waits before its restart. It doubles every time.
func restartPause(first time.Duration, restarts int32) time.Duration {
	pause := first
	for range restarts {
		if pause *= 2; pause >= maxRestartPause {
			return maxRestartPause
		}
	}
	return min(pause, maxRestartPause)
}

// restarting is the verdict on a job that waits for its restart.
func (v *view) restarting(verdict *Verdict, previous Previous) {
	verdict.Stage, verdict.Phase, verdict.StartTime = plan.Restarting, training.PhasePending, previous.StartTime
	verdict.setWaiting(Condition{Reason: reasonRestarting, Message: fmt.Sprintf("Restart %d of %d is due after a failure: %s",
		verdict.Restart.Count, v.job.Lifetime.BackoffLimit, verdict.Restart.Message)})
	verdict.forgetReports(reasonRestarting, "The job is being restarted")
	if v.checkDeadline(verdict, previous); verdict.Lookup == LookupNothing && verdict.Stage != plan.Finished {
		if wait := verdict.Restart.DueTime.Sub(v.observed.Now); wait > 0 {
			verdict.checkIn(wait)
		}
	}
}

// mustWaitForRestart reports whether the restart is not due yet, or pods from before it
// must be deleted first.
func (v *view) mustWaitForRestart(previous Previous) bool {
	if previous.Restart == nil {
		return false
	}
	isOld := func(pod *corev1.Pod) bool { return plan.RestartOf(pod) < previous.Restart.Count }
	if v.job.Kind.Traits().RestartsAsWhole && slices.ContainsFunc(slices.Concat(v.observed.Launchers, v.observed.Workers), isOld) {
		return true
	}
	isOldAndRunning := func(pod *corev1.Pod) bool { return isOld(pod) && !isPodFinished(pod) }
	return slices.ContainsFunc(slices.Concat(v.observed.Launchers, v.observed.Initializers), isOldAndRunning) || v.observed.Now.Before(previous.Restart.DueTime.Time)
}
