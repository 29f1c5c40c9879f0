// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/nodes"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

const (
	// scaleUpTimeout is how long a gang may wait for nodes that the cluster autoscaler adds.
	scaleUpTimeout = time.Hour
	// workerStatusTimeout is how long the status of a worker's pod may lag behind a
	// launcher that failed because it lost this worker.
	workerStatusTimeout = 2 * time.Second
	// initializerRestarts is how often the kubelet may restart the initializer. The
	// initializer itself retries before it exits.
	initializerRestarts = 2
)

// running is the verdict on a job that has pods or waits for a queue or quota to have
// them.
func (v *view) running(verdict *Verdict, previous Previous) {
	if verdict.Stage == plan.Held && v.yieldsToOlderJob(previous) {
		verdict.StartTime = previous.StartTime
		v.waitForQuota(verdict, previous)
		return
	}
	if verdict.Stage == plan.Held {
		verdict.suspend(Condition{Yes: true, Reason: reasonQueued, Message: v.queueMessage()}, previous)
		return
	}
	v.recordSteps(verdict, previous)
	verdict.StartTime = previous.StartTime
	if verdict.StartTime == nil && verdict.Gang.Yes {
		verdict.StartTime = stepTime(verdict.Timeline, training.StepScheduled)
	}
	v.applyReports(verdict, previous)
	if v.launcherSucceeded() {
		v.finish(verdict, training.PhaseSucceeded, v.launcherEnd().FinishedAt.Time)
		return
	}
	if failure := v.firstFailure(previous); failure != nil {
		v.handleFailure(verdict, previous, failure)
		return
	}
	if stalled := v.stallFailure(verdict); stalled != nil {
		v.handleFailure(verdict, previous, stalled)
		return
	}
	v.checkTimeouts(verdict, previous)
	if verdict.Stage == plan.Active && verdict.Lookup == LookupNothing {
		v.waitForQuota(verdict, previous)
	}
	if obstacle := v.observed.Obstacle; obstacle != nil && !v.allCreated() && verdict.Stage != plan.Finished {
		verdict.block(*obstacle)
	}
}

// allCreated reports whether everything exists that the operator creates at this stage.
func (v *view) allCreated() bool {
	if v.mustInitialize() {
		return len(v.initializers()) >= v.job.Initializers()
	}
	return v.observed.Workload.Exists && len(v.pods()) >= int(v.expectedPods())
}

// handleFailure fails or restarts the job, unless the failure must be confirmed first:
// the cache may not show yet that a pod is running or has succeeded.
func (v *view) handleFailure(verdict *Verdict, previous Previous, failure *jobFailure) {
	switch {
	case (failure.needsConfirmation || failure.stopped) && !v.observed.Confirmed:
		verdict.Lookup = LookupConfirmation
	case v.isWorkerStatusPending(failure):
		verdict.NextCheck = 200 * time.Millisecond
	default:
		v.failOrRestart(verdict, previous, failure)
	}
}

// isWorkerStatusPending reports whether the launcher failed only just now because it
// lost a worker, and the status of the worker's pod does not show the cause yet.
func (v *view) isWorkerStatusPending(failure *jobFailure) bool {
	// The node's clock may be ahead of the operator's.
	if failure.precedence != precedenceLauncher || failure.reason != training.FailureWorker || v.observed.Now.Sub(failure.at).Abs() > workerStatusTimeout {
		return false
	}
	report := reportOf(v.launcherEnd())
	if report == nil {
		return false
	}
	pod := v.workerByHost(report.Host)
	return pod != nil && workerProblem(pod, failure.reason, failure.at) == nil
}

func (v *view) fail(verdict *Verdict, failure *jobFailure) {
	verdict.FailureReason, verdict.FailureMessage, verdict.FailureCause, verdict.FailedProcess = failure.reason, failure.message, failure.cause, failure.process
	at := failure.at
	if failure.stopped {
		at = v.observed.Now
	}
	v.finish(verdict, training.PhaseFailed, at)
}

// finish sets the final status of a job.
func (v *view) finish(verdict *Verdict, phase training.Phase, at time.Time) {
	verdict.Phase, verdict.Stage, verdict.NextCheck = phase, plan.Finished, 0
	// The time comes from a node, whose clock may be wrong.
	if submitted := stepTime(verdict.Timeline, training.StepSubmitted); at.IsZero() || at.After(v.observed.Now) || submitted != nil && at.Before(submitted.Time) {
		at = v.observed.Now
	}
	verdict.CompletionTime = &metav1.Time{Time: at}
	verdict.Report = reportOf(v.launcherEnd())
	v.recordFinish(verdict, at)
	v.finishReports(verdict)
	v.finishWorkers(verdict)
	v.finishLauncher(verdict)
	if verdict.StartTime != nil {
		verdict.Duration = max(at.Sub(verdict.StartTime.Time), 0).Round(time.Second).String()
	}
	if ttl := v.job.Lifetime.TTLSecondsAfterFinished; ttl != nil {
		verdict.NextCheck = atLeastNow(time.Duration(*ttl) * time.Second)
	}
}

// finishWorkers marks all workers of a successful job as ready: the gate starts the
// command only when they are, even if the operator has not observed it.
func (v *view) finishWorkers(verdict *Verdict) {
	if total := v.job.Worker.Replicas; verdict.Phase == training.PhaseSucceeded {
		verdict.WorkersReady = allReady(total)
		setReadyWorkers(&verdict.Progress, total, total)
	}
}

// finishLauncher sets the final condition and phase of the launcher. The phase of its
// pod changes only after the status of its container.
func (v *view) finishLauncher(verdict *Verdict) {
	// The gate starts the command only after the launcher has reached every worker.
	if verdict.Phase == training.PhaseSucceeded || stepTime(verdict.Timeline, training.StepWorkersReached) != nil {
		verdict.LauncherReady = Condition{Yes: true, Reason: "WorkersReached", Message: "The launcher has reached every worker"}
	}
	if status := verdict.LauncherPodStatus; status != nil && v.launcher != nil {
		if main := mainStatus(v.launcher); main != nil && main.State.Terminated != nil && v.launcher.Status.Phase == corev1.PodRunning {
			status.Phase = string(corev1.PodFailed)
			if main.State.Terminated.ExitCode == 0 {
				status.Phase = string(corev1.PodSucceeded)
			}
		}
	}
}

// checkTimeouts fails a job that has exceeded its deadline or the gang's timeout.
func (v *view) checkTimeouts(verdict *Verdict, previous Previous) {
	v.checkDeadline(verdict, previous)
	if !verdict.Gang.Yes && verdict.Lookup == LookupNothing && verdict.Stage != plan.Finished {
		v.checkGang(verdict)
	}
	if verdict.Stage == plan.Finished {
		return
	}
	for _, pod := range v.pods() {
		if problem := problemOf(pod); problem != nil && !problem.ended && problem.reason != crashLoop {
			verdict.checkIn(problem.at.Add(v.observed.Timeouts.Image).Sub(v.observed.Now))
		}
	}
}

// checkDeadline fails a job that has run for longer than activeDeadlineSeconds.
func (v *view) checkDeadline(verdict *Verdict, previous Previous) {
	limit := v.job.Lifetime.ActiveDeadlineSeconds
	if limit == nil || verdict.StartTime == nil {
		return
	}
	if !v.isDeadlineExceeded(verdict.StartTime) {
		verdict.checkIn(v.deadline(verdict.StartTime).Sub(v.observed.Now))
		return
	}
	v.handleFailure(verdict, previous, v.deadlineFailure(verdict, *limit))
}

// isDeadlineExceeded reports whether a job that started at this time has run for longer
// than activeDeadlineSeconds.
func (v *view) isDeadlineExceeded(start *metav1.Time) bool {
	return v.job.Lifetime.ActiveDeadlineSeconds != nil && start != nil && !v.observed.Now.Before(v.deadline(start))
}

func (v *view) deadline(start *metav1.Time) time.Time {
	return start.Add(time.Duration(*v.job.Lifetime.ActiveDeadlineSeconds) * time.Second)
}

// checkIn schedules the next check of the job after this time, or sooner.
func (vd *Verdict) checkIn(wait time.Duration) {
	if wait = atLeastNow(wait); vd.NextCheck == 0 || wait < vd.NextCheck {
		vd.NextCheck = wait
	}
}

// deadlineFailure is the failure of a job that has run for longer than
// activeDeadlineSeconds. Its message says which step the job had reached.
func (v *view) deadlineFailure(verdict *Verdict, limit int64) *jobFailure {
	failure := &jobFailure{at: v.observed.Now, reason: training.FailureTraining, stopped: true}
	var state string
	switch {
	case !verdict.WorkersReady.Yes:
		failure.reason = training.FailureWorker
		state = "not all workers were ready: " + verdict.WorkersReady.Message
	case v.launcher == nil || !verdict.LauncherReady.Yes:
		failure.reason = training.FailureSSHConnection
		state = "all workers were ready, but the launcher had not reached all of them: " + verdict.LauncherReady.Message
	default:
		state = fmt.Sprintf("the launcher had reached all %d workers and its command was still running. If it had nothing left to do, MPI hangs: the last lines of its log say where, kubectl logs %s -n %s",
			v.job.Worker.Replicas, v.launcher.Name, v.job.Namespace)
	}
	failure.message = fmt.Sprintf("Deadline exceeded: the job ran for longer than activeDeadlineSeconds, %d. When it was stopped, %s. Raise activeDeadlineSeconds if it needs longer.",
		limit, withoutPeriod(state))
	return failure
}

// checkGang fails a job whose pods are not all scheduled after the gang's timeout. No
// gang scheduler does this.
func (v *view) checkGang(verdict *Verdict) {
	timeout := time.Duration(v.job.Gang.TimeoutSeconds) * time.Second
	pods := v.pods()
	unscheduled := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return !isScheduled(pod) })
	isComplete := len(pods) >= int(v.expectedPods())
	// For a launcher that is created after its workers, the timeout starts with its pod.
	isLauncherDueLater := v.launcher == nil && v.workersScheduled() && (v.job.LauncherWaits || v.restart > 0)
	if timeout <= 0 || len(pods) == 0 || isComplete && unscheduled < 0 || isLauncherDueLater {
		return
	}
	if v.observed.ScaleUp {
		timeout = max(timeout, scaleUpTimeout)
	}
	if wait := v.waitingSince().Add(timeout).Sub(v.observed.Now); wait > 0 {
		verdict.checkIn(wait)
		return
	}
	// The last pod may have been scheduled a moment ago.
	if !v.observed.Confirmed {
		verdict.Lookup = LookupConfirmation
		return
	}
	if v.observed.FreeNodes == nil {
		verdict.Lookup = LookupNodes
		return
	}
	count := v.observed.FreeNodes
	first := ""
	if unscheduled >= 0 {
		first = fmt.Sprintf(" The first pod that is not scheduled is %s.", v.podTitle(pods[unscheduled]))
	}
	v.fail(verdict, &jobFailure{
		reason: training.FailureGangSchedulingTimeout, at: v.observed.Now,
		message: fmt.Sprintf("Gang scheduling timeout: Requested %d pods, only %d nodes available with sufficient resources%s. After %s: %s.%s Request fewer or smaller workers, or retry when other jobs have finished.",
			v.job.Pods(), count.Free, count.details(), timeout, withoutPeriod(verdict.Gang.Message), first),
	})
}

// maxNodeReasons limits the length of a failure message.
const maxNodeReasons = 3

// details says why nodes have no room, the most frequent reason first.
func (c *NodeCount) details() string {
	reasons := slices.SortedFunc(maps.Keys(c.Unfit), func(a, b nodes.Reason) int {
		return cmp.Or(cmp.Compare(c.Unfit[b], c.Unfit[a]), cmp.Compare(a.String(), b.String()))
	})
	var details []string
	if c.Checked < c.Fitting {
		details = append(details, fmt.Sprintf("%d of %d nodes were checked", c.Checked, c.Fitting))
	}
	for _, reason := range reasons[:min(len(reasons), maxNodeReasons)] {
		details = append(details, fmt.Sprintf("%d %s", c.Unfit[reason], reason))
	}
	if len(details) == 0 {
		return ""
	}
	return " (" + strings.Join(details, "; ") + ")"
}

// waitingSince is when the gang's timeout started: when the first pod was created, or
// the launcher, if all workers had been scheduled before.
func (v *view) waitingSince() time.Time {
	since := v.firstCreated()
	if v.launcher != nil && v.workersScheduled() {
		return latest(since, v.launcher.CreationTimestamp.Time)
	}
	return since
}

func (v *view) workersScheduled() bool {
	workers := v.sortedWorkers()
	return len(workers) == int(v.job.Worker.Replicas) && !slices.ContainsFunc(workers, func(pod *corev1.Pod) bool { return !isScheduled(pod) })
}

func (v *view) firstCreated() (first time.Time) {
	for _, pod := range v.pods() {
		if first.IsZero() || pod.CreationTimestamp.Time.Before(first) {
			first = pod.CreationTimestamp.Time
		}
	}
	return first
}

// expectedPods is how many pods must exist now. A launcher that waits for its workers
// is created only when they are ready.
func (v *view) expectedPods() int32 {
	if v.job.LauncherWaits && v.launcher == nil && v.readyWorkers() < int(v.job.Worker.Replicas) {
		return v.job.Worker.Replicas
	}
	return v.job.Pods()
}

// initializing is the verdict on a job whose initializer has not succeeded yet.
func (v *view) initializing(verdict *Verdict, previous Previous) {
	v.recordSteps(verdict, previous)
	verdict.setWaiting(Condition{Reason: "Initializing", Message: "The initializer is fetching the dataset and the model"})
	if refused := v.refusal(); refused != nil {
		v.fail(verdict, refused)
		return
	}
	problem := v.initializerProblem()
	if problem == nil {
		v.waitForQuota(verdict, previous)
		if obstacle := v.observed.Obstacle; obstacle != nil && !v.allCreated() && verdict.Stage != plan.Finished {
			verdict.block(*obstacle)
		}
		return
	}
	verdict.setWaiting(Condition{Reason: orElse(problem.reason, "Failed"), Message: v.initializerMessage(problem)})
	isFatal := problem.ended || problem.final
	if problem.reason == crashLoop {
		isFatal = maxRestartCount(problem.pod) > initializerRestarts
	} else if !isFatal {
		isFatal = v.isFatal(problem)
		verdict.checkIn(problem.at.Add(v.observed.Timeouts.Image).Sub(v.observed.Now))
	}
	if isFatal {
		v.failOrRestart(verdict, previous, &jobFailure{
			reason: training.FailureTraining, message: verdict.Waiting.Message, cause: problem.reason, at: problem.at, stopped: !problem.ended, retryable: problem.ended || problem.reason == crashLoop,
		})
	}
}

// queueMessage says why a job is held.
func (v *view) queueMessage() string {
	if v.job.Kind.Traits().IsWorkload {
		return "The job is suspended, by its user or by its queue"
	}
	return "Waiting for Kueue to admit the job: its queue has no free quota"
}

// initializers are the newest pods of each initializer. Of earlier starts, only those
// count that have succeeded; failed ones are kept for their logs.
func (v *view) initializers() (pods []*corev1.Pod) {
	newest := map[int]*corev1.Pod{}
	for _, pod := range v.observed.Initializers {
		step := plan.StepOf(pod)
		isCurrent := plan.RestartOf(pod) == v.restart || pod.Status.Phase == corev1.PodSucceeded
		if isCurrent && (newest[step] == nil || newer(pod, newest[step])) {
			newest[step] = pod
		}
	}
	for step := range max(v.job.Initializers(), 1) {
		if pod := newest[step]; pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (v *view) initializerProblem() *podProblem {
	for _, pod := range v.initializers() {
		if problem := problemOf(pod); problem != nil {
			return problem
		}
	}
	return nil
}

// initializerMessage describes a problem of the initializer, if possible with its own
// error message.
func (v *view) initializerMessage(problem *podProblem) string {
	if problem.exit == nil || strings.TrimSpace(problem.exit.Message) == "" {
		return v.problemMessage(problem)
	}
	return fmt.Sprintf("%s failed: %s. %s", capitalized(v.podTitle(problem.pod)), withoutPeriod(problem.exit.Message), logAdvice(problem.pod, problem.container))
}

// podsRunning reports whether all pods of a job are running.
func (v *view) podsRunning() bool {
	if v.launcher == nil || v.launcher.Status.Phase != corev1.PodRunning || int32(len(v.workers)) < v.job.Worker.Replicas {
		return false
	}
	return v.workersRunning()
}

func (v *view) workersRunning() bool {
	for index := range v.job.Worker.Replicas {
		pod := v.workers[index]
		if pod == nil || pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodSucceeded {
			return false
		}
	}
	return true
}

// WorkersRunning is the current launcher, and whether all workers are running. The
// timeout of the gate starts then.
func WorkersRunning(j *job.Job, previous Previous, observed Observed) (launcher *corev1.Pod, running bool) {
	view := newView(j, &previous, &observed)
	return view.launcher, view.launcher != nil && view.workersRunning()
}

// LauncherEnded reports whether the launcher has succeeded or failed by itself.
func LauncherEnded(j *job.Job, previous Previous, observed Observed) bool {
	view := newView(j, &previous, &observed)
	if view.launcherSucceeded() {
		return true
	}
	return view.launcher != nil && (view.launcher.Status.Phase == corev1.PodFailed || willFail(view.launcher))
}

// willFail reports whether all containers of a pod have terminated for good. The kubelet
// reports this shortly before it updates the pod's phase.
func willFail(pod *corev1.Pod) bool {
	statuses := pod.Status.ContainerStatuses
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever && len(statuses) == len(pod.Spec.Containers) &&
		!slices.ContainsFunc(statuses, func(status corev1.ContainerStatus) bool { return status.State.Terminated == nil })
}
