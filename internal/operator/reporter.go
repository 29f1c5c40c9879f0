// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/operator/admission"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reasons of events.
const (
	eventSubmitted   = "JobSubmitted"
	eventGangStarted = "GangSchedulingStarted"
	eventGangDone    = "GangScheduled"
	eventPodsReady   = "PodsReady"
	eventTraining    = "TrainingStarted"
	eventSucceeded   = "JobSucceeded"
	eventFailed      = "JobFailed"
	eventRestarting  = "JobRestarting"
	eventSuspended   = "JobSuspended"
	eventResumed     = "JobResumed"
	eventUnusedHosts = "NotAllHostsUsed"
	eventStalled     = "JobStalled"
	eventProgress    = "ProgressResumed"
	eventStraggler   = "StragglerDetected"
	maxEventNote     = 1000
	maxPodEvents     = 3
	eventAction      = "Run"
)

// reporter writes events, metrics and audit lines for changes of a job.
type reporter struct {
	audit   *admission.Audit
	metrics *jobMetrics
}

func newReporter(kind kind, reader client.Reader, audit *admission.Audit, registry prometheus.Registerer) (*reporter, error) {
	reporter := &reporter{audit: audit, metrics: newJobMetrics(kind.name())}
	return reporter, errors.Join(reporter.metrics.register(registry), registry.Register(newJobGauges(reader, kind, reporter.metrics)))
}

// report compares the previous status of a job with the new one.
func (r *reporter) report(object client.Object, j *job.Job, previous diagnosis.Previous, verdict *diagnosis.Verdict, recorder events.EventRecorder) {
	writer := &eventWriter{object: object, recorder: recorder}
	reached := func(step training.TimelineStep) *metav1.Time {
		if stepOf(previous.Timeline, step) != nil {
			return nil
		}
		return stepOf(verdict.Timeline, step)
	}
	if previous.Phase == "" {
		writer.normal(eventSubmitted, "Created with %d workers, %d slots each (%d ranks)", j.Worker.Replicas, j.Slots, j.WorldSize())
	}
	switch {
	case verdict.Suspension.Yes && !previous.Suspended:
		writer.normal(eventSuspended, "%s", verdict.Suspension.Message)
	case !verdict.Suspension.Yes && previous.Suspended:
		writer.normal(eventResumed, "The job is no longer suspended")
	}
	if reached(training.StepAdmitted) != nil {
		writer.normal(eventGangStarted, "Waiting for %d pods to be scheduled", j.Pods())
	}
	if previous.StartTime == nil && verdict.StartTime != nil {
		writer.normal(eventGangDone, "%s", verdict.Gang.Message)
		r.auditLine("start", object, j, "")
	}
	if reached(training.StepPodsReady) != nil {
		writer.normal(eventPodsReady, "All %d workers are ready", j.Worker.Replicas)
	}
	if reached(training.StepWorkersReached) != nil {
		writer.normal(eventTraining, "The launcher has reached every worker and started its command")
	}
	if restart := verdict.Restart; restart != nil && (previous.Restart == nil || previous.Restart.Count < restart.Count) {
		writer.warning(eventRestarting, "Restart %d of at most %d: %s: %s", restart.Count, j.Lifetime.BackoffLimit, restart.Reason, restart.Message)
	}
	switch {
	case verdict.Stalled.Yes && !previous.Stalled.Yes:
		writer.warning(eventStalled, "%s", verdict.Stalled.Message)
	case previous.Stalled.Yes && !verdict.Stalled.Yes && verdict.Phase == training.PhaseRunning:
		writer.normal(eventProgress, "%s", verdict.Stalled.Message)
	}
	writer.podWarnings(previous, verdict)
	r.reportEnd(writer, object, j, previous, verdict)
	r.metrics.note(runtimeName(object), j, previous, verdict)
}

func (r *reporter) reportEnd(writer *eventWriter, object client.Object, j *job.Job, previous diagnosis.Previous, verdict *diagnosis.Verdict) {
	if previous.Finished() {
		return
	}
	switch verdict.Phase {
	case training.PhaseSucceeded:
		writer.normal(eventSucceeded, "The launcher completed successfully%s", afterDuration(verdict.Duration))
		if report := verdict.Report; report != nil && report.Hosts.Reached > 0 && report.Hosts.Reached < report.Hosts.Expected {
			writer.warning(eventUnusedHosts, "The command used only %d of %d hosts. If this is not intended, check that mpirun uses the job's hostfile and enough processes", report.Hosts.Reached, report.Hosts.Expected)
		}
		r.auditLine("end", object, j, string(verdict.Phase))
	case training.PhaseFailed:
		writer.warning(failureEvent(verdict.FailureReason), "%s: %s", verdict.FailureReason, verdict.FailureMessage)
		r.auditLine("end", object, j, string(verdict.FailureReason))
	}
}

// failureEvent is the reason of the event for a failed job.
func failureEvent(reason training.FailureReason) string {
	switch reason {
	case training.FailureGangSchedulingTimeout, training.FailureLauncher, training.FailureWorker, training.FailureResourceQuota:
		return string(reason)
	}
	return eventFailed
}

func afterDuration(duration string) string {
	if duration == "" {
		return ""
	}
	return " after " + duration
}

func (r *reporter) auditLine(event string, object client.Object, j *job.Job, result string) {
	r.audit.Lifecycle(event, string(j.Kind), object, result)
}

func runtimeName(object client.Object) string {
	if trainJob, isTrainJob := object.(*v2alpha1.TrainJob); isTrainJob {
		return trainJob.Spec.RuntimeRef.Name
	}
	return ""
}

func stepOf(timeline []training.TimelineEntry, step training.TimelineStep) *metav1.Time {
	for i := range timeline {
		if timeline[i].Step == step {
			return &timeline[i].Time
		}
	}
	return nil
}

// eventWriter writes events about one job.
type eventWriter struct {
	object   client.Object
	recorder events.EventRecorder
}

func (ew *eventWriter) normal(reason, format string, arguments ...any) {
	ew.write(corev1.EventTypeNormal, reason, format, arguments...)
}

func (ew *eventWriter) warning(reason, format string, arguments ...any) {
	ew.write(corev1.EventTypeWarning, reason, format, arguments...)
}

func (ew *eventWriter) write(kind, reason, format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	if len(text) > maxEventNote {
		text = text[:maxEventNote] + "…"
	}
	ew.recorder.Eventf(ew.object, nil, kind, reason, eventAction, "%s", text)
}

// podWarnings writes events about pods with a new problem, unless the job has failed.
func (ew *eventWriter) podWarnings(previous diagnosis.Previous, verdict *diagnosis.Verdict) {
	if verdict.Phase == training.PhaseFailed {
		return
	}
	known := map[string]string{}
	for _, status := range previous.WorkerPodStatuses {
		known[status.Name] = status.Reason
	}
	if launcher := previous.LauncherPodStatus; launcher != nil {
		known[launcher.Name] = launcher.Reason
	}
	current := []training.PodStatus{}
	if verdict.LauncherPodStatus != nil {
		current = append(current, *verdict.LauncherPodStatus)
	}
	for _, status := range verdict.WorkerPodStatuses {
		current = append(current, status.PodStatus)
	}
	warned := 0
	for _, status := range current {
		if status.Reason == "" || status.Reason == corev1.PodReasonUnschedulable || status.Reason == "SchedulingGated" || known[status.Name] == status.Reason || warned == maxPodEvents {
			continue
		}
		ew.warning(status.Reason, "%s", status.Message)
		warned++
	}
}

func between(from, to *metav1.Time) *time.Duration {
	if from == nil || to == nil || to.Before(from) {
		return nil
	}
	return new(to.Sub(from.Time))
}
