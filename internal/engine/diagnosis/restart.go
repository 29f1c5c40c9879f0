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

// longestPause is the longest that a restart is put off.
const longestPause = 6 * time.Minute

// reasonRestarting surfaces when a job failed and is about to be restarted.
const reasonRestarting = "Restarting"

// conclude ends a job that has failed, or has it restarted.
func (view *view) conclude(verdict *Verdict, previous Previous, found *failure) {
	if !found.restarts || view.restart >= view.job.Lifetime.BackoffLimit || view.isOverdue(previous.StartTime) {
		view.fail(verdict, found)
		return
	}
	verdict.Restart = &training.Restart{
		Count: view.restart + 1, Reason: found.reason, Message: found.message,
		DueTime: metav1.NewTime(view.seen.Now.Add(restartPause(view.seen.Patience.Restart, view.restart)).Truncate(time.Second)),
	}
	view.restarting(verdict, previous)
}

// restartPause is how long a job waits before its restart.
func restartPause(first time.Duration, restarts int32) time.Duration {
	pause := first
	for range restarts {
		if pause *= 2; pause >= longestPause {
			return longestPause
		}
	}
	return min(pause, longestPause)
}

// restarting is the verdict on a job between two starts.
func (view *view) restarting(verdict *Verdict, previous Previous) {
	verdict.Stage, verdict.Phase, verdict.StartTime = plan.Restarting, training.PhasePending, previous.StartTime
	verdict.wait(Answer{Reason: reasonRestarting, Message: fmt.Sprintf("Restart %d of %d is due after a failure: %s",
		verdict.Restart.Count, view.job.Lifetime.BackoffLimit, verdict.Restart.Message)})
	if view.checkDeadline(verdict, previous); verdict.Ask == AskNothing && verdict.Stage != plan.Finished {
		if wait := verdict.Restart.DueTime.Sub(view.seen.Now); wait > 0 {
			verdict.checkIn(wait)
		}
	}
}

// mustWaitForRestart tells whether the next start is not due yet, or the last one
// has left something that must be gone before it.
func (view *view) mustWaitForRestart(previous Previous) bool {
	if previous.Restart == nil {
		return false
	}
	isOld := func(pod *corev1.Pod) bool { return plan.RestartOf(pod) < previous.Restart.Count }
	if view.job.Kind.Traits().RestartsAsWhole && slices.ContainsFunc(slices.Concat(view.seen.Launchers, view.seen.Workers), isOld) {
		return true
	}
	atWork := func(pod *corev1.Pod) bool { return isOld(pod) && !isOver(pod) }
	return slices.ContainsFunc(slices.Concat(view.seen.Launchers, view.seen.Initializers), atWork) || view.seen.Now.Before(previous.Restart.DueTime.Time)
}
