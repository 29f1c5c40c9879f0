// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

const stallMessage = "No progress for 15m: rank 3 on train-worker-1 is stopped by a signal; the other 3 ranks wait. Restart the job"

func reportedAt(second float64, stall *Stall) *Reported {
	return &Reported{
		TrainerStatus: &training.TrainerStatus{Step: new(int64(10)), TotalSteps: new(int64(100))},
		Ranks:         &training.Ranks{Running: 4, Total: 4}, FirstRank: at(second), Stall: stall, Progressing: stall == nil,
	}
}

// The next leader does not know yet whether a job makes progress. A stalled job stays
// stalled, and another one does not become so.
func TestUnknownProgressKeepsCondition(t *testing.T) {
	onBothKinds(t, func(t *testing.T, kind job.Kind) {
		unknown := reportedAt(20, nil)
		unknown.Progressing = false
		odd := []training.OddRank{{Rank: 3, Host: "train-worker-1", Doing: "Stopped"}}

		scene := runningScene(t, kind)
		scene.observed.Reported = unknown
		scene.storeVerdict()
		if got := scene.condition(training.ConditionStalled); got != "" {
			t.Errorf("a job that has never stalled has the condition %q", got)
		}
		scene.observed.Reported = reportedAt(20, &Stall{Message: stallMessage})
		scene.observed.Reported.Ranks.Odd = odd
		scene.storeVerdict()
		scene.observed.Reported = unknown
		verdict := scene.storeVerdict()
		if want := "True " + reasonNoProgress + ": " + stallMessage; scene.condition(training.ConditionStalled) != want {
			t.Errorf("the condition is %q, want %q", scene.condition(training.ConditionStalled), want)
		}
		if diff := cmp.Diff(odd, verdict.Ranks.Odd); diff != "" || unknown.Ranks.Odd != nil {
			t.Errorf("the odd ranks (-want +got):\n%s", diff)
		}
		scene.observed.Reported = reportedAt(20, nil)
		if again := scene.storeVerdict(); again.Stalled.Yes || again.Ranks.Odd != nil {
			t.Errorf("after progress: %+v, %+v", again.Stalled, again.Ranks)
		}
	})
}

func onBothKinds(t *testing.T, test func(*testing.T, job.Kind)) {
	t.Helper()
	for _, kind := range []job.Kind{job.KindTrainJob, job.KindMPIJob} {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}

func TestReportsAreInTheStatus(t *testing.T) {
	onBothKinds(t, func(t *testing.T, kind job.Kind) {
		scene := runningScene(t, kind)
		if scene.condition(training.ConditionStalled) != "" {
			t.Error("a job that has never stalled has the condition Stalled")
		}
		scene.observed.Reported = reportedAt(20, nil)
		verdict := scene.storeVerdict()
		if diff := cmp.Diff(scene.observed.Reported.TrainerStatus, verdict.TrainerStatus); diff != "" {
			t.Error(diff)
		}
		if up := stepTime(verdict.Timeline, training.StepFirstRankUp); up == nil || !up.Equal(new(stamp(20))) {
			t.Errorf("the first rank is up at %v, want %v", up, stamp(20))
		}
		// A new operator has no reports yet, and keeps what is known.
		scene.observed.Reported = nil
		if again := scene.verdict(); again.Ranks == nil || again.Ranks.Running != 4 || *again.TrainerStatus.Step != 10 {
			t.Errorf("without reports: %+v, %+v", again.Ranks, again.TrainerStatus)
		}
		// Reports of an earlier start say nothing about this one.
		scene.observed.Reported = &Reported{Restart: 1, Ranks: &training.Ranks{Running: 1}}
		if again := scene.verdict(); again.Ranks.Running != 4 {
			t.Errorf("the report of another start was used: %+v", again.Ranks)
		}
		scene.observed.Reported = nil
		scene.launcher(exits(0, "Completed", "", 50))
		if finished := scene.verdict(); finished.Ranks.Running != 0 || *finished.TrainerStatus.Step != 10 {
			t.Errorf("after the end: %+v, %+v", finished.Ranks, finished.TrainerStatus)
		}
	})
}

func TestStalledJobs(t *testing.T) {
	tests := map[string]struct {
		action training.HangAction
		serial bool
		// backoff is the backoffLimit.
		backoff    int32
		wantStage  plan.Stage
		wantReason string
	}{
		"a warning":                {action: training.HangWarn, backoff: 1, wantStage: plan.Active, wantReason: reasonNoProgress},
		"no action":                {backoff: 1, wantStage: plan.Active, wantReason: reasonNoProgress},
		"a restart":                {action: training.HangRestart, backoff: 1, wantStage: plan.Restarting, wantReason: reasonRestarting},
		"no restart left":          {action: training.HangRestart, wantStage: plan.Finished, wantReason: reasonNoProgress},
		"a failure":                {action: training.HangFail, backoff: 1, wantStage: plan.Finished, wantReason: reasonNoProgress},
		"a serial phase, restart":  {action: training.HangRestart, serial: true, backoff: 1, wantStage: plan.Active, wantReason: reasonSerialPhase},
		"a serial phase, to fail":  {action: training.HangFail, serial: true, backoff: 1, wantStage: plan.Active, wantReason: reasonSerialPhase},
		"a serial phase, to watch": {action: training.HangWarn, serial: true, backoff: 1, wantStage: plan.Active, wantReason: reasonSerialPhase},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			onBothKinds(t, func(t *testing.T, kind job.Kind) {
				scene := runningScene(t, kind, backoffLimit(tc.backoff))
				scene.job.Hang.Action = tc.action
				scene.observed.Reported = reportedAt(20, &Stall{Message: stallMessage, Serial: tc.serial})
				verdict := scene.storeVerdict()
				if verdict.Stage != tc.wantStage || verdict.Stalled.Reason != tc.wantReason {
					t.Errorf("the stage is %s and the condition %+v, want %s and %s", verdict.Stage, verdict.Stalled, tc.wantStage, tc.wantReason)
				}
				switch tc.wantStage {
				case plan.Finished:
					if verdict.FailureReason != training.FailureTraining || verdict.FailureCause != training.CauseStalled || !strings.Contains(verdict.FailureMessage, "rank 3 on train-worker-1") {
						t.Errorf("failed with %s, %s: %s", verdict.FailureReason, verdict.FailureCause, verdict.FailureMessage)
					}
				case plan.Restarting:
					if verdict.Restart.Count != 1 || !strings.Contains(verdict.Restart.Message, "rank 3") || verdict.Ranks != nil || verdict.TrainerStatus != nil {
						t.Errorf("restarts with %+v, ranks %+v", verdict.Restart, verdict.Ranks)
					}
				default:
					if want := "True " + tc.wantReason + ": " + stallMessage; scene.condition(training.ConditionStalled) != want {
						t.Errorf("the condition is %q, want %q", scene.condition(training.ConditionStalled), want)
					}
					scene.observed.Reported = reportedAt(20, nil)
					scene.storeVerdict()
					if got := scene.condition(training.ConditionStalled); !strings.HasPrefix(got, "False Progressing") {
						t.Errorf("after progress the condition is %q", got)
					}
				}
			})
		})
	}
}
