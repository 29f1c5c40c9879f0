// Package diagnosis tells how a job stands and, if it failed, why: a pure
// function of the job, of what was known before and of what is seen now.
//
// What it once said of a job's end stays said: the first failure and the
// terminal phase are read back from the status, because the pods that prove
// them may be gone.
package diagnosis

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/engine/redact"
)

// Previous is what the job's status says.
type Previous struct {
	training.Progress
	StartTime, CompletionTime *metav1.Time
	Suspended                 bool
	// Queued: it is a queue that holds the job back, and not its user.
	Queued    bool
	Submitted metav1.Time
	// EndStored is when the operator wrote that the job has ended, by its own clock.
	FinishRecorded metav1.Time
}

// Finished tells whether the job has ended.
func (p *Previous) Finished() bool {
	return p.Phase == training.PhaseSucceeded || p.Phase == training.PhaseFailed
}

// Observed is what is seen of a job.
type Observed struct {
	Now                              time.Time
	Launchers, Workers, Initializers []*corev1.Pod
	// Workload is what stands for the pods.
	Workload Workload
	// Refusal is a pod or another object that the API server did not take.
	Refusal *Refusal
	// Obstacle keeps the job from having pods, until somebody removes it.
	Obstacle *Condition
	// GangWords say how the pods are placed together.
	GangMessage string
	// FreeNodes are the nodes that one of the missing pods would fit on. It is
	// counted only when a gang has waited for too long.
	FreeNodes *NodeCount
	// ScaleUp: the cluster is getting more nodes for these pods.
	ScaleUp bool
	// Confirmed: what is missing was looked for again, past any cache.
	Confirmed bool
	// OlderWaits: an older job of the namespace waits for the same quota.
	OlderWaits bool
	Patience   Patience
}

// NodeCount is how many nodes have room for an unscheduled pod.
type NodeCount struct {
	// Fitting nodes could run the pod if no other pod ran there. Asked is how many of
	// them were checked, and Free how many of those have room now.
	Fitting, Asked, Free int
}

// Patience is how long a job may wait for things that may come by themselves.
type Patience struct {
	// Image is how long a pod may wait for its image.
	Image time.Duration
	// Quota is how long a job may wait for others to free a quota.
	Quota time.Duration
	// Restart is the pause before the first restart; each of the next is twice as long.
	Restart time.Duration
}

// Workload is the object that stands for the pods of a job.
type Workload struct {
	Exists bool
	// Suspended: a queue holds it back.
	Suspended bool
}

// Refusal is an object that the API server did not take.
type Refusal struct {
	// Role of the pod; empty for other objects.
	Role    string
	Object  string
	Message string
	// Quota: a ResourceQuota of the namespace is the cause; its name, if it is known.
	Quota     bool
	QuotaName string
}

// Ask is what must be found out before a verdict can be given.
type Ask string

const (
	// AskNothing: the verdict stands.
	AskNothing Ask = ""
	// AskNodes: how many nodes would take a pod, and whether more are coming?
	AskNodes Ask = "Nodes"
	// AskConfirmation: is what is missing really not there, and the job really
	// not suspended?
	AskConfirmation Ask = "Confirmation"
)

// Verdict is how a job stands.
type Verdict struct {
	training.Progress
	StartTime, CompletionTime *metav1.Time
	Stage                     plan.Stage
	Ask                       Ask

	// Gang, LauncherReady and WorkersReady answer the questions of conditions.
	Gang, LauncherReady, WorkersReady Condition
	// Suspension says why there are no pods; empty where there should be some.
	Suspension Condition
	// Waiting says what a pending job waits for.
	Waiting Condition

	Launcher, Worker Counts
	// Report is what the launcher said of its run, once it has ended.
	Report *protocol.Report
	// NextCheck is when time alone may change the verdict; zero is never.
	NextCheck time.Duration
}

// Condition is one condition of a job: whether it is true, and why.
type Condition struct {
	Yes             bool
	Reason, Message string
}

// Answer is the former name of Condition.
type Answer = Condition

// Counts are numbers of pods. Those that are ready are active, too.
type Counts struct{ Active, Ready, Succeeded, Failed int32 }

// Of is the verdict on a job.
func Of(j *job.Job, previous Previous, observed Observed) Verdict {
	view := newView(j, &previous, &observed)
	if previous.Finished() {
		return view.finishedBefore(previous)
	}
	verdict := Verdict{Progress: view.progress(previous), Stage: view.stage(previous)}
	verdict.Launcher, verdict.Worker = view.counts()
	view.setConditions(&verdict)
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

// redact takes secrets out of all that is told. Most of it is ours; but Kubernetes, the
// API server and the job's own programs are quoted, and they quote commands and values.
func (vd *Verdict) redact() {
	texts := []*string{
		&vd.FailureMessage, &vd.Gang.Message, &vd.LauncherReady.Message, &vd.WorkersReady.Message, &vd.Suspension.Message, &vd.Waiting.Message,
	}
	if vd.LauncherPodStatus != nil {
		texts = append(texts, &vd.LauncherPodStatus.Message)
	}
	for i := range vd.WorkerPodStatuses {
		texts = append(texts, &vd.WorkerPodStatuses[i].Message)
	}
	// Both may be those of the status, which is not ours to change.
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

// finishedBefore keeps everything as it was said; only the life that is left is
// counted.
func (v *view) finishedBefore(previous Previous) Verdict {
	verdict := Verdict{
		Progress: previous.Progress, StartTime: previous.StartTime, CompletionTime: previous.CompletionTime, Stage: plan.Finished,
	}
	verdict.Launcher, verdict.Worker = v.counts()
	if v.job.Lifetime.TTLSecondsAfterFinished != nil {
		verdict.NextCheck = atLeastNow(expiry(v.job, previous).Sub(v.observed.Now))
	}
	return verdict
}

// Expired tells whether a job that has ended is to be deleted.
func Expired(j *job.Job, previous Previous, now time.Time) bool {
	return j.Lifetime.TTLSecondsAfterFinished != nil && previous.Finished() && !now.Before(expiry(j, previous))
}

// expiry counts from when the end was stored. The completion time is a node's, and its
// clock may be wrong: a job must not be deleted before its user can have seen its end.
func expiry(j *job.Job, previous Previous) time.Time {
	return previous.FinishRecorded.Add(time.Duration(*j.Lifetime.TTLSecondsAfterFinished) * time.Second)
}

// stage is where the job stands, as far as its objects are concerned.
func (v *view) stage(previous Previous) plan.Stage {
	observed := v.observed
	hasPods := len(observed.Launchers)+len(observed.Workers) > 0
	switch {
	// A launcher that was done before anybody stopped it is done.
	case v.launcherSucceeded() && !v.wasLauncherDeleted():
		return plan.Active
	case v.job.Suspended:
		return plan.Suspended
	case v.heldByQueue(), previous.Queued && hasPods, v.yieldsToOlderJob(previous):
		return plan.Held
	// What was created before the suspension must be gone before anything is
	// created again.
	case previous.Suspended && !previous.Queued && (hasPods || len(observed.Initializers) > 0 || observed.Workload.Exists):
		return plan.Suspended
	case v.mustWaitForRestart(previous):
		return plan.Restarting
	case v.job.Initializer != nil && !v.isInitialized() && !observed.Workload.Exists:
		return plan.Initializing
	default:
		return plan.Active
	}
}

// heldByQueue tells whether a queue keeps the job from having pods.
func (v *view) heldByQueue() bool {
	return v.observed.Workload.Exists && v.observed.Workload.Suspended
}

// hasFetched tells whether the initializer is done.
func (v *view) isInitialized() bool {
	return slices.ContainsFunc(v.observed.Initializers, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
}

// reasonQueued surfaces when a queue holds a job back.
const reasonQueued = "Queued"

// obstaclePatience is how long until an obstacle is looked at again.
const obstacleRetryPause = 30 * time.Second

// Hindered is the verdict on a job that cannot even be read as one.
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
	// What began before the suspension begins anew after it.
	vd.Timeline = keepSteps(previous.Timeline, training.StepSubmitted)
	vd.record(training.StepSubmitted, previous.Submitted.Time)
}

// wait is the one answer to all questions of a job that shall have no pods yet.
func (vd *Verdict) setWaiting(condition Condition) {
	vd.Waiting, vd.Gang, vd.WorkersReady, vd.LauncherReady = condition, condition, condition, condition
}

func atLeastNow(duration time.Duration) time.Duration { return max(duration, time.Millisecond) }
