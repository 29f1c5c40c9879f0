package diagnosis

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/plan"
)

const (
	// scaleUpTimeout is how long a gang may wait for nodes that are being made.
	scaleUpTimeout = time.Hour
	// explanationPatience is how long a launcher that lost a worker waits for what
	// the worker's own pod has to say.
	explanationPatience = 2 * time.Second
)

// running is the verdict on a job that has, or shall have, its pods.
func (view *view) running(verdict *Verdict, previous Previous) {
	if view.heldByQueue() {
		verdict.suspended(previous)
		verdict.Stage = plan.Active
		verdict.Suspension = Answer{Yes: true, Reason: "Queued", Message: "Kueue holds the job back until there is room in its queue"}
		verdict.Waiting = verdict.Suspension
		return
	}
	view.recordSteps(verdict, previous)
	verdict.StartTime = previous.StartTime
	if verdict.StartTime == nil && verdict.Gang.Yes {
		verdict.StartTime = stepTime(verdict.Timeline, training.StepScheduled)
	}
	if view.launcherSucceeded() {
		view.end(verdict, training.PhaseSucceeded, view.launcherEnd().FinishedAt.Time)
		return
	}
	if found := view.firstFailure(previous); found != nil {
		view.judge(verdict, found)
		return
	}
	view.checkClocks(verdict)
	if obstacle := view.seen.Obstacle; obstacle != nil && !view.seen.Workload.Exists {
		verdict.hinder(*obstacle)
	}
}

// judge fails the job, unless something must be found out first.
func (view *view) judge(verdict *Verdict, found *failure) {
	switch {
	case found.doubtful && !view.seen.Confirmed:
		verdict.Ask = AskConfirmation
	case view.mayBeExplained(found):
		verdict.NextCheck = 200 * time.Millisecond
	default:
		view.fail(verdict, found)
	}
}

// mayBeExplained tells whether the pod of a worker that the launcher lost will
// say within a moment what became of it.
func (view *view) mayBeExplained(found *failure) bool {
	if found.rank != rankLauncher || found.reason != training.FailureWorker || view.seen.Now.Sub(found.at) > explanationPatience {
		return false
	}
	report := reportOf(view.launcherEnd())
	return report != nil && view.byHost(report.Host) != nil
}

func (view *view) fail(verdict *Verdict, found *failure) {
	verdict.FailureReason, verdict.FailureMessage = found.reason, found.message
	view.end(verdict, training.PhaseFailed, found.at)
}

// end is the end of a job.
func (view *view) end(verdict *Verdict, phase training.Phase, at time.Time) {
	verdict.Phase, verdict.Stage, verdict.NextCheck = phase, plan.Finished, 0
	if at.IsZero() || at.After(view.seen.Now) {
		at = view.seen.Now
	}
	verdict.CompletionTime = &metav1.Time{Time: at}
	verdict.Report = reportOf(view.launcherEnd())
	view.recordEnd(verdict, at)
	view.concludeLauncher(verdict)
	if verdict.StartTime != nil {
		verdict.Duration = max(at.Sub(verdict.StartTime.Time), 0).Round(time.Second).String()
	}
	if ttl := view.job.Lifetime.TTLSecondsAfterFinished; ttl != nil {
		verdict.NextCheck = atLeastNow(at.Add(time.Duration(*ttl) * time.Second).Sub(view.seen.Now))
	}
}

// concludeLauncher says what the launcher came to: its pod's own phase follows
// only a moment later.
func (view *view) concludeLauncher(verdict *Verdict) {
	if stepTime(verdict.Timeline, training.StepWorkersReached) != nil {
		verdict.LauncherReady = Answer{Yes: true, Reason: "WorkersReached", Message: "The launcher has reached every worker"}
	}
	if status := verdict.LauncherPodStatus; status != nil && view.launcher != nil {
		if main := mainStatus(view.launcher); main != nil && main.State.Terminated != nil && view.launcher.Status.Phase == corev1.PodRunning {
			status.Phase = string(corev1.PodFailed)
			if main.State.Terminated.ExitCode == 0 {
				status.Phase = string(corev1.PodSucceeded)
			}
		}
	}
}

// launcherSucceeded: success is read from the launcher's container, because Job
// and JobSet say so only a second later.
func (view *view) launcherSucceeded() bool {
	if view.launcher == nil {
		return false
	}
	status := mainStatus(view.launcher)
	return status != nil && status.State.Terminated != nil && status.State.Terminated.ExitCode == 0 && view.launcher.Status.Phase != corev1.PodFailed
}

// checkClocks fails a job whose time is up.
func (view *view) checkClocks(verdict *Verdict) {
	now := view.seen.Now
	if limit := view.job.Lifetime.ActiveDeadlineSeconds; limit != nil && verdict.StartTime != nil {
		deadline := verdict.StartTime.Add(time.Duration(*limit) * time.Second)
		if !now.Before(deadline) {
			view.fail(verdict, view.overdue(verdict, *limit))
			return
		}
		verdict.checkIn(deadline.Sub(now))
	}
	if !verdict.Gang.Yes {
		view.checkGang(verdict)
	}
	for _, pod := range view.pods() {
		if found := troubleWith(pod); found != nil && !found.ended && found.reason != "CrashLoopBackOff" {
			verdict.checkIn(found.at.Add(view.seen.ImagePatience).Sub(now))
		}
	}
}

// checkIn has the job looked at again, no later than this.
func (verdict *Verdict) checkIn(wait time.Duration) {
	if wait = atLeastNow(wait); verdict.NextCheck == 0 || wait < verdict.NextCheck {
		verdict.NextCheck = wait
	}
}

// overdue is the failure of a job that ran for too long; it says where it stood.
func (view *view) overdue(verdict *Verdict, limit int64) *failure {
	found := &failure{at: view.seen.Now, reason: training.FailureTraining}
	var stood string
	switch {
	case !verdict.WorkersReady.Yes:
		found.reason = training.FailureWorker
		stood = "not all workers were ready: " + verdict.WorkersReady.Message
	case !verdict.LauncherReady.Yes:
		found.reason = training.FailureSSHConnection
		stood = "all workers were ready, but the launcher had not reached all of them: " + verdict.LauncherReady.Message
	default:
		stood = fmt.Sprintf("the launcher had reached all %d workers and its command was still running. If it had nothing left to do, MPI hangs: the last lines of its log say where, kubectl logs %s -n %s",
			view.job.Worker.Replicas, view.launcher.Name, view.job.Namespace)
	}
	found.message = fmt.Sprintf("Deadline exceeded: the job ran for longer than activeDeadlineSeconds, %d. When it was ended %s. Raise activeDeadlineSeconds if it needs longer.",
		limit, strings.TrimSuffix(stood, "."))
	return found
}

// checkGang fails a job whose pods did not all get a place in time. No scheduler
// ever does.
func (view *view) checkGang(verdict *Verdict) {
	timeout := time.Duration(view.job.Gang.TimeoutSeconds) * time.Second
	since, complete := view.waitingSince()
	if timeout <= 0 || !complete {
		return
	}
	if view.seen.ScaleUp {
		timeout = max(timeout, scaleUpTimeout)
	}
	if wait := since.Add(timeout).Sub(view.seen.Now); wait > 0 {
		verdict.checkIn(wait)
		return
	}
	if view.seen.FreeNodes == nil {
		verdict.Ask = AskNodes
		return
	}
	view.fail(verdict, &failure{
		reason: training.FailureGangSchedulingTimeout, at: view.seen.Now,
		message: fmt.Sprintf("Gang scheduling timeout: Requested %d pods, only %d nodes available with sufficient resources. After %s: %s. Ask for fewer or smaller nodes, or try again when others have ended.",
			view.job.Pods(), *view.seen.FreeNodes, timeout, strings.TrimSuffix(verdict.Gang.Message, ".")),
	})
}

// waitingSince is when the last of the pods came to exist.
func (view *view) waitingSince() (since time.Time, complete bool) {
	pods := view.pods()
	for _, pod := range pods {
		if pod.CreationTimestamp.After(since) {
			since = pod.CreationTimestamp.Time
		}
	}
	return since, len(pods) == int(view.expectedPods())
}

// expectedPods is how many pods there shall be now: a launcher that waits for
// its workers comes later.
func (view *view) expectedPods() int32 {
	if view.job.LauncherWaits && view.launcher == nil && !view.seen.Workload.Exists {
		return view.job.Worker.Replicas
	}
	return view.job.Pods()
}

// initializing is the verdict on a job that fetches what it starts from.
func (view *view) initializing(verdict *Verdict, previous Previous) {
	view.recordSteps(verdict, previous)
	verdict.Waiting = Answer{Reason: "Initializing", Message: "The initializer fetches what the job starts from"}
	if refused := view.refusal(); refused != nil {
		view.fail(verdict, refused)
		return
	}
	for _, pod := range view.seen.Initializers {
		found := troubleWith(pod)
		if found == nil {
			continue
		}
		verdict.Waiting = Answer{Reason: found.reason, Message: view.initializerSentence(found)}
		if view.seen.Fetching.Failed != "" || !found.ended && view.fatal(found) {
			view.fail(verdict, &failure{reason: training.FailureTraining, message: verdict.Waiting.Message, at: found.at})
			return
		}
		if !found.ended {
			verdict.checkIn(found.at.Add(view.seen.ImagePatience).Sub(view.seen.Now))
		}
	}
	if view.seen.Fetching.Failed != "" {
		view.fail(verdict, &failure{reason: training.FailureTraining, at: view.seen.Fetching.FailedAt,
			message: fmt.Sprintf("The initializer failed: %s. Start the job again.", view.seen.Fetching.Failed)})
	}
}

// initializerSentence prefers what the initializer itself says.
func (view *view) initializerSentence(found *trouble) string {
	if found.exit != nil && found.exit.Message != "" {
		return fmt.Sprintf("%s failed: %s", capital(view.who(found.pod)), strings.TrimSpace(found.exit.Message))
	}
	return view.sentence(found)
}

// PodsRun tells whether all pods of a job run.
func (view *view) podsRun() bool {
	if view.launcher == nil || view.launcher.Status.Phase != corev1.PodRunning || int32(len(view.workers)) < view.job.Worker.Replicas {
		return false
	}
	return view.workersRun()
}

func (view *view) workersRun() bool {
	for index := range view.job.Worker.Replicas {
		pod := view.workers[index]
		if pod == nil || pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodSucceeded {
			return false
		}
	}
	return true
}

// WorkersRunning tells since when all workers run, for the gate's clock.
func WorkersRunning(made *job.Job, seen Observed) (launcher *corev1.Pod, running bool) {
	view := newView(made, &seen)
	return view.launcher, view.launcher != nil && view.workersRun()
}

// LauncherEnded tells whether the launcher has come to its end by itself.
func LauncherEnded(made *job.Job, seen Observed) bool {
	view := newView(made, &seen)
	if view.launcherSucceeded() {
		return true
	}
	return view.launcher != nil && view.launcher.Status.Phase == corev1.PodFailed && view.launcherGaveUp()
}

// EndsByItself tells whether a pod has ended, so that whatever made it will
// notice and end the others.
func EndsByItself(made *job.Job, seen Observed) bool {
	view := newView(made, &seen)
	if view.launcherSucceeded() {
		return true
	}
	for _, pod := range view.pods() {
		if failed(pod) != nil {
			return true
		}
	}
	return false
}
