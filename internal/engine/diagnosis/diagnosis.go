// SPDX-License-Identifier: Apache-2.0

// Package diagnosis computes the status of a job and, if the job failed, the cause.
// It is a pure function of the job, its previous status and the observed pods.
//
// A finished job keeps its phase and its failure: both are read back from the
// status, because the pods that prove them may have been deleted.
package diagnosis

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
	"github.com/trireme-mpi/trireme/internal/engine/nodes"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/engine/redact"
)

// Previous is the status that the job had before.
type Previous struct {
	training.Progress
	StartTime, CompletionTime *metav1.Time
	Suspended                 bool
	// Queued: the job is suspended by its queue, not by its user.
	Queued bool
	// Stalled is the condition of that name; its zero value if the job has never stalled.
	Stalled   Condition
	Submitted metav1.Time
	// FinishRecorded is when the operator recorded that the job had finished, by the
	// operator's own clock.
	FinishRecorded metav1.Time
}

// Finished reports whether the job has succeeded or failed.
func (p *Previous) Finished() bool {
	return p.Phase == training.PhaseSucceeded || p.Phase == training.PhaseFailed
}

// Observed is the state of a job's objects in the cluster.
type Observed struct {
	Now                              time.Time
	Launchers, Workers, Initializers []*corev1.Pod
	Workload                         Workload
	// Refusal is a pod or another object that the API server refused to create.
	Refusal *Refusal
	// Obstacle prevents the creation of pods until a user or a cluster administrator
	// removes it.
	Obstacle *Condition
	// GangMessage names the gang scheduler of the pods, and why it was chosen.
	GangMessage string
	// FreeNodes are the nodes that an unscheduled pod would fit on. They are counted
	// only after the gang's timeout.
	FreeNodes *NodeCount
	// ScaleUp: the cluster autoscaler is adding nodes for these pods.
	ScaleUp bool
	// Confirmed: the objects were read from the API server and not from a cache.
	Confirmed bool
	// Reported is what the pods have reported; nil if nothing was.
	Reported *Reported
	// OlderWaits: an older job of the namespace waits for the same quota.
	OlderWaits bool
	Timeouts   Timeouts
}

// NodeCount is how many nodes have room for an unscheduled pod.
type NodeCount struct {
	// Fitting nodes could run the pod if they were empty. Checked is how many of them
	// were checked, and Free how many of those have room now.
	Fitting, Checked, Free int
	// Unfit counts the checked nodes without room, and those that could not run the pod
	// if they were empty, by reason. The scheduler's own message may not name any: for a
	// gang, Kubernetes 1.37 only says that its pods cannot all be scheduled.
	Unfit map[nodes.Reason]int
}

// Timeouts holds the timeouts for problems that may resolve by themselves.
type Timeouts struct {
	// Image is how long a pod may wait for its image.
	Image time.Duration
	// Quota is how long a job may wait until other jobs free a quota.
	Quota time.Duration
	// Restart is the pause before the first restart. It doubles with each restart.
	Restart time.Duration
}

// Workload is the JobSet of a TrainJob, or the launcher's batch Job of an MPIJob.
type Workload struct {
	Exists bool
	// Suspended: Kueue has not admitted it.
	Suspended bool
}

// Refusal is an object that the API server refused to create.
type Refusal struct {
	// Role of the pod; empty for other objects.
	Role    string
	Object  string
	Message string
	// Quota: a ResourceQuota of the namespace is exceeded; QuotaName is its name, if known.
	Quota     bool
	QuotaName string
}

// Lookup is what the operator must look up before the verdict is complete.
type Lookup string

const (
	// LookupNothing: the verdict is complete.
	LookupNothing Lookup = ""
	// LookupNodes: set FreeNodes and ScaleUp.
	LookupNodes Lookup = "Nodes"
	// LookupConfirmation: read the job and its objects past the cache, because the verdict
	// would fail the job for something that is missing or too slow.
	LookupConfirmation Lookup = "Confirmation"
)

// Verdict is the new status of a job, and what the operator does next.
type Verdict struct {
	training.Progress
	StartTime, CompletionTime *metav1.Time
	Stage                     plan.Stage
	Lookup                    Lookup

	Gang, LauncherReady, WorkersReady Condition
	// Suspension says why the job must have no pods; empty if it may have some.
	Suspension Condition
	// Stalled says whether the ranks make no progress.
	Stalled Condition
	// Waiting says what a pending job waits for.
	Waiting Condition

	Launcher, Worker Counts
	// Steps are the pods of each step of a job that has some.
	Steps []Counts
	// Report is the report of the launcher's agent, once the command has finished.
	Report *protocol.Report
	// NextCheck is when the verdict may change without an event; zero is never.
	NextCheck time.Duration
}

// Condition is one condition of a job: whether it is true, and why.
type Condition struct {
	Yes             bool
	Reason, Message string
}

// Counts are numbers of pods. Ready pods also count as active.
type Counts struct{ Active, Ready, Succeeded, Failed int32 }

// Of is the verdict on a job.
func Of(j *job.Job, previous Previous, observed Observed) Verdict {
	view := newView(j, &previous, &observed)
	if previous.Finished() {
		return view.finishedBefore(previous)
	}
	verdict := Verdict{Progress: view.progress(previous), Stage: view.stage(previous)}
	verdict.Launcher, verdict.Worker = view.counts()
	verdict.Steps = view.stepCounts()
	view.setConditions(&verdict)
	if len(j.Unsupported) > 0 {
		verdict.record(training.StepSubmitted, previous.Submitted.Time)
		view.fail(&verdict, view.unsupported())
		return verdict
	}
	switch verdict.Stage {
	case plan.Suspended:
		verdict.suspended(previous)
	case plan.Initializing:
		view.initializing(&verdict, previous)
	case plan.Restarting:
		view.restarting(&verdict, previous)
	default:
		view.running(&verdict, previous)
	}
	verdict.redact()
	return verdict
}

// redact removes secrets from all messages. They quote Kubernetes, the API server and
// the job's own programs, which may quote commands and values.
func (vd *Verdict) redact() {
	texts := []*string{
		&vd.FailureMessage, &vd.Gang.Message, &vd.LauncherReady.Message, &vd.WorkersReady.Message, &vd.Suspension.Message, &vd.Waiting.Message, &vd.Stalled.Message,
	}
	if vd.LauncherPodStatus != nil {
		texts = append(texts, &vd.LauncherPodStatus.Message)
	}
	for i := range vd.WorkerPodStatuses {
		texts = append(texts, &vd.WorkerPodStatuses[i].Message)
	}
	// Both may point into the previous status, which must not change.
	if vd.Restart != nil {
		vd.Restart = vd.Restart.DeepCopy()
		texts = append(texts, &vd.Restart.Message)
	}
	if vd.QuotaWait != nil {
		vd.QuotaWait = vd.QuotaWait.DeepCopy()
		texts = append(texts, &vd.QuotaWait.Message)
	}
	if process := vd.FailedProcess; process != nil {
		texts = append(texts, &process.Error)
		process.LastLines = mpi.SafeLines(strings.Split(redact.Text(strings.Join(process.LastLines, "\n")), "\n"))
	}
	for _, text := range texts {
		if *text != "" {
			*text = redact.Text(*text)
		}
	}
}

// finishedBefore is the verdict on a job that had finished before: its status stays,
// and only the time until its deletion changes.
func (v *view) finishedBefore(previous Previous) Verdict {
	verdict := Verdict{
		Progress: previous.Progress, StartTime: previous.StartTime, CompletionTime: previous.CompletionTime, Stage: plan.Finished,
	}
	verdict.Launcher, verdict.Worker = v.counts()
	verdict.Steps = v.stepCounts()
	if v.job.Lifetime.TTLSecondsAfterFinished != nil {
		verdict.NextCheck = atLeastNow(expiry(v.job, previous).Sub(v.observed.Now))
		if previous.FinishRecorded.IsZero() {
			verdict.NextCheck = unrecordedPause
		}
	}
	return verdict
}

// unrecordedPause is when a finished job is checked again whose result is not recorded
// yet where others read it.
const unrecordedPause = time.Second

// Expired reports whether a finished job is past its TTL and must be deleted.
func Expired(j *job.Job, previous Previous, now time.Time) bool {
	return j.Lifetime.TTLSecondsAfterFinished != nil && previous.Finished() && !previous.FinishRecorded.IsZero() && !now.Before(expiry(j, previous))
}

// expiry counts from FinishRecorded. The completion time comes from a node, whose clock
// may be wrong, and a job must not be deleted before its user can see the result.
func expiry(j *job.Job, previous Previous) time.Time {
	return previous.FinishRecorded.Add(time.Duration(*j.Lifetime.TTLSecondsAfterFinished) * time.Second)
}

func (v *view) stage(previous Previous) plan.Stage {
	observed := v.observed
	hasPods := len(observed.Launchers)+len(observed.Workers) > 0
	switch {
	// A launcher that succeeded before the job was stopped has succeeded.
	case v.launcherSucceeded() && !v.wasLauncherDeleted():
		return plan.Active
	case v.job.Suspended:
		return plan.Suspended
	case v.heldByQueue(), previous.Queued && hasPods, v.yieldsToOlderJob(previous):
		return plan.Held
	// Everything from before the suspension must be deleted before anything is
	// created again.
	case previous.Suspended && !previous.Queued && (hasPods || len(observed.Initializers) > 0 || observed.Workload.Exists):
		return plan.Suspended
	case v.mustWaitForRestart(previous):
		return plan.Restarting
	case v.mustInitialize():
		return plan.Initializing
	default:
		return plan.Active
	}
}

// heldByQueue reports whether the job waits for Kueue to admit it.
func (v *view) heldByQueue() bool {
	return v.observed.Workload.Exists && v.observed.Workload.Suspended
}

// mustInitialize reports whether initializers must succeed before launcher and workers
// are created. Their pods may be deleted later, so a job that was started before is
// initialized.
func (v *view) mustInitialize() bool {
	if v.job.Initializers() == 0 || v.isInitialized() {
		return false
	}
	if v.job.Kind.Traits().IsWorkload {
		return len(v.observed.Launchers)+len(v.observed.Workers) == 0
	}
	return !v.observed.Workload.Exists
}

// isInitialized reports whether a pod of every initializer has succeeded.
func (v *view) isInitialized() bool {
	succeeded := map[int]bool{}
	for _, pod := range v.observed.Initializers {
		if pod.Status.Phase == corev1.PodSucceeded {
			succeeded[plan.StepOf(pod)] = true
		}
	}
	return len(succeeded) >= max(v.job.Initializers(), 1)
}

// reasonQueued is the reason of the Suspended condition while Kueue has not admitted
// the job.
const reasonQueued = "Queued"

// obstacleRetryPause is how long until an obstacle is checked again.
const obstacleRetryPause = 30 * time.Second

// Blocked is the verdict on a job that has no model, for example because its runtime is
// missing.
func Blocked(previous Previous, obstacle Condition) Verdict {
	verdict := Verdict{Progress: *previous.Progress.DeepCopy(), StartTime: previous.StartTime, Stage: plan.Suspended}
	verdict.Phase = training.PhasePending
	verdict.block(obstacle)
	verdict.record(training.StepSubmitted, previous.Submitted.Time)
	return verdict
}

func (vd *Verdict) block(obstacle Condition) {
	vd.Waiting, vd.Gang = obstacle, obstacle
	for _, condition := range []*Condition{&vd.WorkersReady, &vd.LauncherReady} {
		if condition.Reason == "" {
			*condition = obstacle
		}
	}
	vd.checkIn(obstacleRetryPause)
}

func (vd *Verdict) suspended(previous Previous) {
	suspension := Condition{Yes: true, Reason: "Suspended", Message: "The job is suspended and has no pods"}
	if vd.Launcher.Active+vd.Worker.Active > 0 {
		suspension.Message = "The job is suspended; its pods are being deleted"
	}
	vd.suspend(suspension, previous)
}

func (vd *Verdict) suspend(suspension Condition, previous Previous) {
	vd.Phase = training.PhasePending
	vd.setWaiting(Condition{Reason: suspension.Reason, Message: suspension.Message})
	vd.Suspension = suspension
	vd.forgetReports(suspension.Reason, suspension.Message)
	// After the suspension the job goes through all later steps again.
	vd.Timeline = keepSteps(previous.Timeline, training.StepSubmitted)
	vd.record(training.StepSubmitted, previous.Submitted.Time)
}

// setWaiting sets all conditions of a job that must not have pods yet to the same
// reason.
func (vd *Verdict) setWaiting(condition Condition) {
	vd.Waiting, vd.Gang, vd.WorkersReady, vd.LauncherReady = condition, condition, condition, condition
}

// atLeastNow is a duration until a check that is already due or still to come. It is never
// zero, because a NextCheck of zero means none.
func atLeastNow(duration time.Duration) time.Duration { return max(duration, time.Millisecond) }
