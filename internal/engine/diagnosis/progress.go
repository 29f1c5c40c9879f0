// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// progress is the progress of the job as its pods show it.
func (v *view) progress(previous Previous) training.Progress {
	progress := training.Progress{Phase: training.PhasePending, Timeline: previous.Timeline, Restart: previous.Restart}
	if v.podsRunning() {
		progress.Phase = training.PhaseRunning
	}
	setReadyWorkers(&progress, int32(v.readyWorkers()), v.job.Worker.Replicas)
	if v.launcher != nil {
		progress.LauncherPodStatus = new(v.podStatus(v.launcher))
		v.explainLauncher(progress.LauncherPodStatus, previous.LauncherPodStatus)
	} else if known := previous.LauncherPodStatus; known != nil && isFailureReason(known.Reason) && !v.job.Suspended && !previous.Suspended && !v.heldByQueue() {
		// The pod was deleted and is being replaced: keep the reason of its failure.
		progress.LauncherPodStatus = known.DeepCopy()
	}
	for index := range v.job.Worker.Replicas {
		if pod := v.workers[index]; pod != nil {
			progress.WorkerPodStatuses = append(progress.WorkerPodStatuses, training.WorkerPodStatus{Index: index, PodStatus: v.podStatus(pod)})
		}
	}
	return progress
}

// setReadyWorkers sets the counts, and the text for kubectl's column.
func setReadyWorkers(progress *training.Progress, ready, total int32) {
	progress.ReadyWorkerCount, progress.WorkerCount = ready, total
	progress.ReadyWorkers = fmt.Sprintf("%d/%d", ready, total)
}

func (v *view) readyWorkers() (ready int) {
	for _, pod := range v.workers {
		if isReady(pod) {
			ready++
		}
	}
	return ready
}

func (v *view) podStatus(pod *corev1.Pod) training.PodStatus {
	status := training.PodStatus{Name: pod.Name, Node: pod.Spec.NodeName, Phase: string(pod.Status.Phase)}
	if problem := problemOf(pod); problem != nil {
		status.Reason, status.Message = problem.reason, v.problemMessage(problem)
		return status
	}
	if scheduled := podCondition(pod, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		status.Reason, status.Message = scheduled.Reason, scheduled.Message
	}
	return status
}

// explainLauncher sets why the launcher's command last failed, because its pod may be
// deleted before the job fails. A reason from before the deletion stays: timestamps
// have seconds only, so an exit and a deletion in the same second look the same.
func (v *view) explainLauncher(status, known *training.PodStatus) {
	ended := v.launcherEnd()
	switch {
	case ended == nil || ended.ExitCode == 0:
	case known != nil && known.Name == status.Name && isFailureReason(known.Reason) && wasDeletedBy(v.launcher, ended.FinishedAt.Time):
		status.Reason, status.Message = known.Reason, known.Message
	default:
		failure := v.launcherExit(ended)
		status.Reason, status.Message = string(failure.reason), failure.message
	}
}

// setConditions sets the conditions, and Waiting to the first that is not true.
func (v *view) setConditions(verdict *Verdict) {
	verdict.Gang = v.gangCondition()
	verdict.WorkersReady = v.workersReadyCondition()
	verdict.LauncherReady = v.launcherReadyCondition()
	for _, condition := range []Condition{verdict.Gang, verdict.WorkersReady, verdict.LauncherReady} {
		if !condition.Yes {
			verdict.Waiting = condition
			return
		}
	}
}

// CreatingPods is the reason of a condition while not all pods exist.
const CreatingPods = "CreatingPods"

// isAboutGang reports whether a scheduler's message only says that the gang does not fit,
// and nothing about nodes. Pods of a gang that would fit themselves have such messages.
func isAboutGang(message string) bool {
	// scheduler-plugins.
	if strings.Contains(message, "optimistic rejection") {
		return true
	}
	// kube-scheduler 1.37.
	return strings.Contains(message, "minCount (") &&
		(strings.Contains(message, "cannot be satisfied") || strings.Contains(message, "is not yet satisfied"))
}

// Unscheduled returns the first pod without a node and the scheduler's message about it,
// if possible of a pod that itself does not fit. It is nil if all pods have a node.
func Unscheduled(pods []*corev1.Pod) (first *corev1.Pod, message string) {
	for _, pod := range pods {
		if isScheduled(pod) {
			continue
		}
		if first == nil {
			first = pod
		}
		condition := podCondition(pod, corev1.PodScheduled)
		if condition == nil || condition.Status != corev1.ConditionFalse || condition.Message == "" {
			continue
		}
		if message == "" || isAboutGang(message) && !isAboutGang(condition.Message) {
			first, message = pod, condition.Message
		}
	}
	return first, message
}

func (v *view) gangCondition() Condition {
	scheduled := int32(0)
	pods := v.pods()
	for _, pod := range pods {
		if isScheduled(pod) {
			scheduled++
		}
	}
	_, schedulerMessage := Unscheduled(pods)
	total := v.job.Pods()
	switch {
	case scheduled == total:
		return Condition{Yes: true, Reason: "Scheduled", Message: fmt.Sprintf("All %d pods are scheduled. %s", total, v.observed.GangMessage)}
	case int32(len(pods)) < v.expectedPods():
		return Condition{Reason: CreatingPods, Message: fmt.Sprintf("%d of %d pods exist, %d are scheduled", len(pods), total, scheduled)}
	case schedulerMessage == "":
		return Condition{Reason: "Waiting", Message: fmt.Sprintf("%d of %d pods are scheduled", scheduled, total)}
	default:
		return Condition{Reason: "Waiting", Message: fmt.Sprintf("%d of %d pods are scheduled; scheduler: %s", scheduled, total, schedulerMessage)}
	}
}

func (v *view) workersReadyCondition() Condition {
	total, ready := v.job.Worker.Replicas, int32(v.readyWorkers())
	if ready == total {
		return allReady(total)
	}
	condition := Condition{Reason: "Waiting", Message: fmt.Sprintf("%d of %d workers are ready", ready, total)}
	for _, pod := range v.sortedWorkers() {
		if problem := problemOf(pod); problem != nil {
			condition.Reason = orElse(problem.reason, condition.Reason)
			condition.Message += ". " + v.problemMessage(problem)
			return condition
		}
	}
	for index := range total {
		pod := v.workers[index]
		if pod == nil {
			condition.Message += fmt.Sprintf(". Worker %d has no pod", index)
			break
		}
		if !isReady(pod) {
			condition.Message += fmt.Sprintf(". %s is not ready", capitalized(v.podTitle(pod)))
			break
		}
	}
	return condition
}

func allReady(total int32) Condition {
	return Condition{Yes: true, Reason: "Ready", Message: fmt.Sprintf("All %d workers are ready", total)}
}

func (v *view) launcherReadyCondition() Condition {
	if v.launcher == nil {
		return Condition{Reason: "Waiting", Message: "The launcher has no pod yet"}
	}
	if isReady(v.launcher) {
		return Condition{Yes: true, Reason: "WorkersReached", Message: "The launcher has reached every worker"}
	}
	if problem := problemOf(v.launcher); problem != nil {
		return Condition{Reason: orElse(problem.reason, "Failed"), Message: v.problemMessage(problem)}
	}
	launcher := capitalized(v.podTitle(v.launcher))
	if v.launcher.Status.Phase == corev1.PodRunning {
		return Condition{Reason: "ReachingWorkers", Message: launcher + " is running and waits until it can reach every worker"}
	}
	return Condition{Reason: "Waiting", Message: launcher + " is not running yet"}
}

// recordSteps adds the steps that the job has reached. A recorded step keeps its time.
func (v *view) recordSteps(verdict *Verdict, previous Previous) {
	record := func(step training.TimelineStep, reached bool, at time.Time) {
		if reached {
			verdict.record(step, at)
		}
	}
	record(training.StepSubmitted, true, previous.Submitted.Time)
	record(training.StepAdmitted, !v.mustInitialize(), v.admittedAt(previous))
	record(training.StepScheduled, verdict.Gang.Yes, v.latest(v.pods(), scheduledAt))
	record(training.StepPodsReady, verdict.WorkersReady.Yes, v.latest(v.sortedWorkers(), readyAt))
	if v.launcher != nil {
		record(training.StepWorkersReached, verdict.LauncherReady.Yes, readyAt(v.launcher))
	}
}

// admittedAt is when the first pod was created, or now if there is none. The first
// status that shows pods may be computed only after the last pod was created.
func (v *view) admittedAt(previous Previous) time.Time {
	at := v.observed.Now
	for _, pod := range v.pods() {
		if !pod.CreationTimestamp.IsZero() {
			at = earlier(at, pod.CreationTimestamp.Time)
		}
	}
	return latest(at, previous.Submitted.Time)
}

// recordFinish adds the finish, and the steps that only the launcher's report contains.
func (v *view) recordFinish(verdict *Verdict, at time.Time) {
	if report := verdict.Report; report != nil && report.Hosts.Expected > 0 && report.Hosts.Reached > 0 {
		started := v.commandStarted(report)
		if report.Timings.Init > 0 && !started.IsZero() {
			verdict.record(training.StepWorkersReached, started)
			verdict.record(training.StepFirstRankUp, earlier(started.Add(seconds(report.Timings.Init)), at))
		}
	}
	// A short job may finish before the kubelets report that its workers are ready.
	if reached := stepTime(verdict.Timeline, training.StepWorkersReached); reached != nil {
		verdict.record(training.StepPodsReady, reached.Time)
	}
	verdict.record(training.StepFinished, at)
}

// commandStarted is when the launcher had passed its gate, according to the report.
func (v *view) commandStarted(report *protocol.Report) time.Time {
	ended := v.launcherEnd()
	if ended == nil || ended.StartedAt.IsZero() {
		return time.Time{}
	}
	gate := report.Timings.DNS + report.Timings.Connect + report.Timings.Ports
	return earlier(ended.StartedAt.Add(seconds(gate)), ended.FinishedAt.Time)
}

// seconds converts a duration from a report. It is bounded because a program can forge
// a report.
func seconds(reported float64) time.Duration {
	return time.Duration(min(max(reported, 0), math.MaxInt32) * float64(time.Second))
}

func latest(one, other time.Time) time.Time {
	if one.After(other) {
		return one
	}
	return other
}

func earlier(one, other time.Time) time.Time {
	if one.Before(other) {
		return one
	}
	return other
}

func readyAt(pod *corev1.Pod) time.Time {
	if ready := podCondition(pod, corev1.PodReady); ready != nil {
		return ready.LastTransitionTime.Time
	}
	return time.Time{}
}

func (v *view) latest(pods []*corev1.Pod, when func(*corev1.Pod) time.Time) (latest time.Time) {
	for _, pod := range pods {
		if at := when(pod); at.After(latest) {
			latest = at
		}
	}
	return latest
}

// stepOrder is the order of the steps in a timeline.
var stepOrder = []training.TimelineStep{
	training.StepSubmitted, training.StepAdmitted, training.StepScheduled, training.StepPodsReady,
	training.StepWorkersReached, training.StepFirstRankUp, training.StepFinished,
}

// record adds a step in stepOrder, unless it is already recorded.
func (vd *Verdict) record(step training.TimelineStep, at time.Time) {
	if at.IsZero() || stepTime(vd.Timeline, step) != nil {
		return
	}
	// The readiness probe runs every two seconds, so readiness may be recorded later
	// than the steps that follow it.
	if step == training.StepWorkersReached || step == training.StepFirstRankUp {
		for _, needed := range []training.TimelineStep{training.StepPodsReady, training.StepWorkersReached} {
			if reached := stepTime(vd.Timeline, needed); reached != nil {
				at = latest(at, reached.Time)
			}
		}
	}
	// A launcher that reached all workers proves that they were ready by then.
	if reached := stepTime(vd.Timeline, training.StepWorkersReached); step == training.StepPodsReady && reached != nil {
		at = earlier(at, reached.Time)
	}
	// The timeline may belong to the previous status, which must not change.
	timeline := append(slices.Clone(vd.Timeline), training.TimelineEntry{Step: step, Time: metav1.Time{Time: at.Truncate(time.Second)}})
	slices.SortStableFunc(timeline, func(a, b training.TimelineEntry) int {
		return slices.Index(stepOrder, a.Step) - slices.Index(stepOrder, b.Step)
	})
	vd.Timeline = timeline
}

func stepTime(timeline []training.TimelineEntry, step training.TimelineStep) *metav1.Time {
	for i := range timeline {
		if timeline[i].Step == step {
			return timeline[i].Time.DeepCopy()
		}
	}
	return nil
}

func keepSteps(timeline []training.TimelineEntry, steps ...training.TimelineStep) (kept []training.TimelineEntry) {
	for _, entry := range timeline {
		if slices.Contains(steps, entry.Step) {
			kept = append(kept, entry)
		}
	}
	return kept
}
