// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"time"

	"github.com/trireme-mpi/trireme/api/training"
)

// Reported is what the pods of a job have reported in one start of the job.
type Reported struct {
	// Restart is the number of that start.
	Restart int32
	// TrainerStatus is the progress; nil if none was reported.
	TrainerStatus *training.TrainerStatus
	// Ranks are nil if the launcher's agent has not reported yet.
	Ranks *training.Ranks
	// FirstRank is when the first rank was started; zero if that is not known.
	FirstRank time.Time
	// Stall is set while the job makes no progress, and Progressing while it does. If neither
	// is set, that is not known yet, for example after a change of the leader.
	Stall       *Stall
	Progressing bool
}

// Stall is a job whose ranks make no progress.
type Stall struct {
	Message string
	// Serial: some ranks compute while all others wait for them, which may be correct.
	Serial bool
}

// Reasons of the condition Stalled.
const (
	reasonNoProgress  = "NoProgress"
	reasonSerialPhase = "SerialPhase"
	reasonProgressing = "Progressing"
)

// applyReports adds to the verdict what the pods have reported. Without reports, for
// example after a restart of the operator, the last status stays.
func (v *view) applyReports(verdict *Verdict, previous Previous) {
	verdict.TrainerStatus, verdict.Ranks, verdict.Stalled = previous.TrainerStatus, previous.Ranks, previous.Stalled
	reported := v.observed.Reported
	if reported == nil || reported.Restart != v.restart {
		return
	}
	if reported.TrainerStatus != nil {
		verdict.TrainerStatus = reported.TrainerStatus
	}
	if reported.Ranks == nil {
		return
	}
	verdict.Ranks = reported.Ranks.DeepCopy()
	// The readiness probe may be later than the first rank. The order of the steps stays.
	if !reported.FirstRank.IsZero() && stepTime(verdict.Timeline, training.StepWorkersReached) != nil {
		verdict.record(training.StepFirstRankUp, earlier(reported.FirstRank, v.observed.Now))
	}
	switch stall := reported.Stall; {
	case stall == nil && reported.Progressing:
		verdict.progressing()
	case stall == nil:
		// A job that was stalled still is, until it makes progress.
		if previous.Stalled.Yes && previous.Ranks != nil {
			verdict.Ranks.Odd = previous.Ranks.DeepCopy().Odd
		}
	case stall.Serial:
		verdict.Stalled = Condition{Yes: true, Reason: reasonSerialPhase, Message: stall.Message}
	default:
		verdict.Stalled = Condition{Yes: true, Reason: reasonNoProgress, Message: stall.Message}
	}
}

// progressing ends a stall.
func (vd *Verdict) progressing() {
	vd.Stalled = Condition{Reason: reasonProgressing, Message: "The ranks make progress"}
}

// forgetReports drops what was reported before a restart or a suspension.
func (vd *Verdict) forgetReports(reason, message string) {
	vd.TrainerStatus, vd.Ranks = nil, nil
	vd.Stalled = Condition{Reason: reason, Message: message}
}

// finishReports ends the reports of a finished job: no rank is running any more. Its
// progress stays.
func (v *view) finishReports(verdict *Verdict) {
	if verdict.Ranks != nil {
		verdict.Ranks = verdict.Ranks.DeepCopy()
		verdict.Ranks.Running = 0
	}
	if verdict.FailureCause != training.CauseStalled {
		verdict.Stalled = Condition{Reason: string(verdict.Phase), Message: "The job has finished"}
	}
}

// stallFailure is the failure of a job that makes no progress; nil if the job only warns.
// Ranks that wait for others that compute may be right to do so.
func (v *view) stallFailure(verdict *Verdict) *jobFailure {
	action := v.job.Hang.Action
	if !verdict.Stalled.Yes || verdict.Stalled.Reason != reasonNoProgress || action != training.HangRestart && action != training.HangFail {
		return nil
	}
	return &jobFailure{
		reason: training.FailureTraining, cause: training.CauseStalled, at: v.observed.Now, stopped: true, retryable: action == training.HangRestart,
		message: withoutPeriod(verdict.Stalled.Message) + ". The job was stopped, as its hang.action says",
	}
}
