package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

const (
	// scaleUpTimeout is how long a gang may wait for nodes that are being made.
	scaleUpTimeout = time.Hour
	// explanationPatience is how long a launcher that lost a worker waits for what
	// the worker's own pod has to say.
	explanationPatience = 2 * time.Second
	// initializerRestarts is how often the kubelet may restart the initializer, after
	// the retries that it makes by itself.
	initializerRestarts = 2
)

// running is the verdict on a job that has, or shall have, its pods.
func (view *view) running(verdict *Verdict, previous Previous) {
	if verdict.Stage == plan.Held && view.yields(previous) {
		verdict.StartTime = previous.StartTime
		view.waitForQuota(verdict, previous)
		return
	}
	if verdict.Stage == plan.Held {
		verdict.suspend(Answer{Yes: true, Reason: reasonQueued, Message: "Kueue holds the job back until there is room in its queue"}, previous)
		return
	}
	view.recordSteps(verdict, previous)
	verdict.StartTime = previous.StartTime
	if verdict.StartTime == nil && verdict.Gang.Yes {
		verdict.StartTime = stepTime(verdict.Timeline, training.StepScheduled)
	}
	if view.exitedWell() {
		view.end(verdict, training.PhaseSucceeded, view.launcherEnd().FinishedAt.Time)
		return
	}
	if found := view.firstFailure(previous); found != nil {
		view.judge(verdict, previous, found)
		return
	}
	view.checkClocks(verdict, previous)
	if verdict.Stage == plan.Active && verdict.Ask == AskNothing {
		view.waitForQuota(verdict, previous)
	}
	if obstacle := view.seen.Obstacle; obstacle != nil && !view.allMade() && verdict.Stage != plan.Finished {
		verdict.hinder(*obstacle)
	}
}

// allMade tells whether everything exists that the operator creates at this stage.
func (view *view) allMade() bool {
	if view.job.Initializer != nil && !view.hasFetched() && !view.seen.Workload.Exists {
		return view.initializer() != nil
	}
	return view.seen.Workload.Exists && len(view.pods()) >= int(view.expectedPods())
}

// judge fails or restarts the job, unless something must be found out first: a cache
// may not know that what has waited for too long is running, or has succeeded.
func (view *view) judge(verdict *Verdict, previous Previous, found *failure) {
	switch {
	case (found.doubtful || found.stopped) && !view.seen.Confirmed:
		verdict.Ask = AskConfirmation
	case view.mayBeExplained(found):
		verdict.NextCheck = 200 * time.Millisecond
	default:
		view.conclude(verdict, previous, found)
	}
}

// mayBeExplained tells whether the pod of a worker that the launcher lost will
// say within a moment what became of it.
func (view *view) mayBeExplained(found *failure) bool {
	// Clocks of nodes may be ahead.
	if found.rank != rankLauncher || found.reason != training.FailureWorker || view.seen.Now.Sub(found.at).Abs() > explanationPatience {
		return false
	}
	report := reportOf(view.launcherEnd())
	if report == nil {
		return false
	}
	pod := view.byHost(report.Host)
	return pod != nil && explanation(pod, found.reason, found.at) == nil
}

func (view *view) fail(verdict *Verdict, found *failure) {
	verdict.FailureReason, verdict.FailureMessage, verdict.FailureCause, verdict.FailedProcess = found.reason, found.message, found.cause, found.process
	at := found.at
	if found.stopped {
		at = view.seen.Now
	}
	view.end(verdict, training.PhaseFailed, at)
}

// end is the end of a job.
func (view *view) end(verdict *Verdict, phase training.Phase, at time.Time) {
	verdict.Phase, verdict.Stage, verdict.NextCheck = phase, plan.Finished, 0
	// Clocks of nodes may be wrong.
	if submitted := stepTime(verdict.Timeline, training.StepSubmitted); at.IsZero() || at.After(view.seen.Now) || submitted != nil && at.Before(submitted.Time) {
		at = view.seen.Now
	}
	verdict.CompletionTime = &metav1.Time{Time: at}
	verdict.Report = reportOf(view.launcherEnd())
	view.recordEnd(verdict, at)
	view.concludeWorkers(verdict)
	view.concludeLauncher(verdict)
	if verdict.StartTime != nil {
		verdict.Duration = max(at.Sub(verdict.StartTime.Time), 0).Round(time.Second).String()
	}
	if ttl := view.job.Lifetime.TTLSecondsAfterFinished; ttl != nil {
		verdict.NextCheck = atLeastNow(time.Duration(*ttl) * time.Second)
	}
}

// concludeWorkers: a command that ended well was let through by the gate, which
// found every worker ready, whether or not that was noticed.
func (view *view) concludeWorkers(verdict *Verdict) {
	if total := view.job.Worker.Replicas; verdict.Phase == training.PhaseSucceeded {
		verdict.WorkersReady = allReady(total)
		setReadyWorkers(&verdict.Progress, total, total)
	}
}

// concludeLauncher says what the launcher came to: its pod's own phase follows
// only a moment later.
func (view *view) concludeLauncher(verdict *Verdict) {
	// A command that ended well was let through by the gate.
	if verdict.Phase == training.PhaseSucceeded || stepTime(verdict.Timeline, training.StepWorkersReached) != nil {
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

// checkClocks fails a job whose time is up.
func (view *view) checkClocks(verdict *Verdict, previous Previous) {
	view.checkDeadline(verdict, previous)
	if !verdict.Gang.Yes && verdict.Ask == AskNothing && verdict.Stage != plan.Finished {
		view.checkGang(verdict)
	}
	if verdict.Stage == plan.Finished {
		return
	}
	for _, pod := range view.pods() {
		if found := troubleWith(pod); found != nil && !found.ended && found.reason != crashLoop {
			verdict.checkIn(found.at.Add(view.seen.Patience.Image).Sub(view.seen.Now))
		}
	}
}

// checkDeadline fails a job that ran for longer than it may.
func (view *view) checkDeadline(verdict *Verdict, previous Previous) {
	limit := view.job.Lifetime.ActiveDeadlineSeconds
	if limit == nil || verdict.StartTime == nil {
		return
	}
	if !view.isOverdue(verdict.StartTime) {
		verdict.checkIn(view.deadline(verdict.StartTime).Sub(view.seen.Now))
		return
	}
	view.judge(verdict, previous, view.overdue(verdict, *limit))
}

// isOverdue tells whether a job that started then has run for longer than it may.
func (view *view) isOverdue(start *metav1.Time) bool {
	return view.job.Lifetime.ActiveDeadlineSeconds != nil && start != nil && !view.seen.Now.Before(view.deadline(start))
}

func (view *view) deadline(start *metav1.Time) time.Time {
	return start.Add(time.Duration(*view.job.Lifetime.ActiveDeadlineSeconds) * time.Second)
}

// checkIn has the job looked at again, no later than this.
func (verdict *Verdict) checkIn(wait time.Duration) {
	if wait = atLeastNow(wait); verdict.NextCheck == 0 || wait < verdict.NextCheck {
		verdict.NextCheck = wait
	}
}

// overdue is the failure of a job that ran for too long; it says where it stood.
func (view *view) overdue(verdict *Verdict, limit int64) *failure {
	found := &failure{at: view.seen.Now, reason: training.FailureTraining, stopped: true}
	var stood string
	switch {
	case !verdict.WorkersReady.Yes:
		found.reason = training.FailureWorker
		stood = "not all workers were ready: " + verdict.WorkersReady.Message
	case view.launcher == nil || !verdict.LauncherReady.Yes:
		found.reason = training.FailureSSHConnection
		stood = "all workers were ready, but the launcher had not reached all of them: " + verdict.LauncherReady.Message
	default:
		stood = fmt.Sprintf("the launcher had reached all %d workers and its command was still running. If it had nothing left to do, MPI hangs: the last lines of its log say where, kubectl logs %s -n %s",
			view.job.Worker.Replicas, view.launcher.Name, view.job.Namespace)
	}
	found.message = fmt.Sprintf("Deadline exceeded: the job ran for longer than activeDeadlineSeconds, %d. When it was ended %s. Raise activeDeadlineSeconds if it needs longer.",
		limit, trimmed(stood))
	return found
}

// checkGang fails a job whose pods were not all scheduled in time. No scheduler
// ever does.
func (view *view) checkGang(verdict *Verdict) {
	timeout := time.Duration(view.job.Gang.TimeoutSeconds) * time.Second
	pods := view.pods()
	unplaced := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return !isPlaced(pod) })
	isComplete := len(pods) >= int(view.expectedPods())
	// The clock of a launcher that comes after its workers starts when it exists.
	comesLater := view.launcher == nil && view.workersPlaced() && (view.job.LauncherWaits || view.restart > 0)
	if timeout <= 0 || len(pods) == 0 || isComplete && unplaced < 0 || comesLater {
		return
	}
	if view.seen.ScaleUp {
		timeout = max(timeout, scaleUpTimeout)
	}
	if wait := view.waitingSince().Add(timeout).Sub(view.seen.Now); wait > 0 {
		verdict.checkIn(wait)
		return
	}
	// The last pod may have been scheduled a moment ago.
	if !view.seen.Confirmed {
		verdict.Ask = AskConfirmation
		return
	}
	if view.seen.FreeNodes == nil {
		verdict.Ask = AskNodes
		return
	}
	count, asked := view.seen.FreeNodes, ""
	if count.Asked < count.Fitting {
		asked = fmt.Sprintf(" (%d of %d nodes were checked)", count.Asked, count.Fitting)
	}
	first := ""
	if unplaced >= 0 {
		first = fmt.Sprintf(" The first without a place is %s.", view.who(pods[unplaced]))
	}
	view.fail(verdict, &failure{
		reason: training.FailureGangSchedulingTimeout, at: view.seen.Now,
		message: fmt.Sprintf("Gang scheduling timeout: Requested %d pods, only %d nodes available with sufficient resources%s. After %s: %s.%s Ask for fewer or smaller nodes, or try again when others have ended.",
			view.job.Pods(), count.Free, asked, timeout, trimmed(verdict.Gang.Message), first),
	})
}

// waitingSince is when the clock of the gang started: with its first pod, or with a
// launcher that is created, or restarted, after all workers were scheduled.
func (view *view) waitingSince() time.Time {
	since := view.firstCreated()
	if view.launcher != nil && view.workersPlaced() {
		return latest(since, view.launcher.CreationTimestamp.Time)
	}
	return since
}

func (view *view) workersPlaced() bool {
	workers := view.inOrder()
	return len(workers) == int(view.job.Worker.Replicas) && !slices.ContainsFunc(workers, func(pod *corev1.Pod) bool { return !isPlaced(pod) })
}

func (view *view) firstCreated() (first time.Time) {
	for _, pod := range view.pods() {
		if first.IsZero() || pod.CreationTimestamp.Time.Before(first) {
			first = pod.CreationTimestamp.Time
		}
	}
	return first
}

// expectedPods is how many pods there shall be now: a launcher that waits for
// its workers comes when they are ready.
func (view *view) expectedPods() int32 {
	if view.job.LauncherWaits && view.launcher == nil && view.readyWorkers() < int(view.job.Worker.Replicas) {
		return view.job.Worker.Replicas
	}
	return view.job.Pods()
}

// initializing is the verdict on a job that fetches what it starts from.
func (view *view) initializing(verdict *Verdict, previous Previous) {
	view.recordSteps(verdict, previous)
	verdict.wait(Answer{Reason: "Initializing", Message: "The initializer fetches what the job starts from"})
	if refused := view.refusal(); refused != nil {
		view.fail(verdict, refused)
		return
	}
	found := view.initializerTrouble()
	if found == nil {
		view.waitForQuota(verdict, previous)
		if obstacle := view.seen.Obstacle; obstacle != nil && !view.allMade() && verdict.Stage != plan.Finished {
			verdict.hinder(*obstacle)
		}
		return
	}
	verdict.wait(Answer{Reason: orElse(found.reason, "Failed"), Message: view.initializerSentence(found)})
	isFatal := found.ended || found.forGood
	if found.reason == crashLoop {
		isFatal = restarts(found.pod) > initializerRestarts
	} else if !isFatal {
		isFatal = view.fatal(found)
		verdict.checkIn(found.at.Add(view.seen.Patience.Image).Sub(view.seen.Now))
	}
	if isFatal {
		view.conclude(verdict, previous, &failure{
			reason: training.FailureTraining, message: verdict.Waiting.Message, cause: found.reason, at: found.at, stopped: !found.ended, restarts: found.ended || found.reason == crashLoop,
		})
	}
}

// initializer is the initializer's pod of this start: those of the starts before it
// have failed, and are kept for their logs.
func (view *view) initializer() (found *corev1.Pod) {
	for _, pod := range view.seen.Initializers {
		if plan.RestartOf(pod) == view.restart && (found == nil || newer(pod, found)) {
			found = pod
		}
	}
	return found
}

func (view *view) initializerTrouble() *trouble {
	if pod := view.initializer(); pod != nil {
		return troubleWith(pod)
	}
	return nil
}

// initializerSentence prefers what the initializer itself says.
func (view *view) initializerSentence(found *trouble) string {
	if found.exit == nil || strings.TrimSpace(found.exit.Message) == "" {
		return view.sentence(found)
	}
	return fmt.Sprintf("%s failed: %s. %s", capital(view.who(found.pod)), trimmed(found.exit.Message), logAdvice(found.pod, found.container))
}

// podsRun tells whether all pods of a job run.
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
func WorkersRunning(made *job.Job, previous Previous, seen Observed) (launcher *corev1.Pod, running bool) {
	view := newView(made, &previous, &seen)
	return view.launcher, view.launcher != nil && view.workersRun()
}

// LauncherEnded tells whether the launcher has come to its end by itself.
func LauncherEnded(made *job.Job, previous Previous, seen Observed) bool {
	view := newView(made, &previous, &seen)
	if view.exitedWell() {
		return true
	}
	return view.launcher != nil && (view.launcher.Status.Phase == corev1.PodFailed || willFail(view.launcher))
}

// willFail tells whether a pod has nothing left that runs, or will. Kubelet tells of
// its containers' end a moment before it tells of the pod's.
func willFail(pod *corev1.Pod) bool {
	statuses := pod.Status.ContainerStatuses
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever && len(statuses) == len(pod.Spec.Containers) &&
		!slices.ContainsFunc(statuses, func(status corev1.ContainerStatus) bool { return status.State.Terminated == nil })
}
