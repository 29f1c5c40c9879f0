// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// seeds of the random jobs are the same in every run. A failure names its seed.
const seeds = 150

// eachRandomJob checks a property with many random jobs of both kinds and many
// observations of each. Jobs are suspended and resumed in between.
func eachRandomJob(t *testing.T, looks int, check func(t *testing.T, scene *scene)) {
	for _, kind := range kinds {
		for seed := range uint64(seeds) {
			chance := newRandomJob(seed, kind)
			scene := &scene{t: t, job: chance.job}
			scene.trainJob.CreationTimestamp, scene.mpiJob.CreationTimestamp = stamp(submitted), stamp(submitted)
			for look := range looks {
				scene.observed = chance.observe()
				scene.freeNodes, scene.scalesUp = chance.IntN(3), chance.oneIn(3)
				scene.job.Suspended = chance.oneIn(10)
				check(t, scene)
				if restart := scene.previous().Restart; restart != nil {
					chance.restart = restart.Count
				}
				if t.Failed() {
					t.Fatalf("that was look %d at the %s of seed %d", look, kind, seed)
				}
			}
		}
	}
}

// No order of observations moves a job out of a terminal phase, or changes its result.
func TestTerminalPhaseIsFinal(t *testing.T) {
	phases, reasons := map[training.Phase]int{}, map[training.FailureReason]int{}
	eachRandomJob(t, 20, func(t *testing.T, scene *scene) {
		before := scene.previous()
		verdict := scene.storeVerdict()
		after := scene.previous()
		phases[after.Phase]++
		reasons[after.FailureReason]++
		if isFinished(verdict) != (verdict.Stage == plan.Finished) || isFinished(verdict) != (after.CompletionTime != nil) {
			t.Errorf("%s, stage %s, completed at %v", verdict.Phase, verdict.Stage, after.CompletionTime)
		}
		if !before.Finished() {
			return
		}
		for what, same := range map[string]bool{
			"phase":          before.Phase == after.Phase,
			"failureReason":  before.FailureReason == after.FailureReason,
			"failureMessage": before.FailureMessage == after.FailureMessage,
			"completionTime": before.CompletionTime.Equal(after.CompletionTime),
			"startTime":      before.StartTime.Equal(after.StartTime),
			"duration":       before.Duration == after.Duration,
			"timeline":       reflect.DeepEqual(before.Timeline, after.Timeline),
		} {
			if !same {
				t.Errorf("its %s has changed:\n%s", what, cmp.Diff(before, after))
			}
		}
	})
	// Without enough variety the property would prove little.
	t.Logf("phases %v, reasons %v", phases, reasons)
	if len(phases) != 4 || len(reasons) != 8 {
		t.Errorf("only phases %v and reasons %v occurred", phases, reasons)
	}
}

// The same input gives the same verdict in any order of the pods, and is not changed.
func TestVerdictIsDeterministic(t *testing.T) {
	eachRandomJob(t, 10, func(t *testing.T, scene *scene) {
		previous := scene.previous()
		j, before, observed := *scene.job, deepCopy(previous), copyOf(scene.observed)
		first := Of(scene.job, previous, scene.observed)
		wantEqual(t, "what was seen, before and after", observed, scene.observed)
		wantEqual(t, "the status, before and after", before, previous)
		wantEqual(t, "the job, before and after", &j, scene.job)
		wantEqual(t, "the verdict, first and again", first, Of(scene.job, before, observed))
		wantEqual(t, "the verdict, first and with pods in another order", first, Of(scene.job, before, reversed(observed)))
		scene.storeVerdict()
	})
}

// wantEqual computes a diff only if the values differ, because that is slow.
func wantEqual[T any](t *testing.T, what string, one, other T) {
	t.Helper()
	if !reflect.DeepEqual(one, other) {
		t.Errorf("%s differ (-one +other):\n%s", what, cmp.Diff(one, other))
	}
}

func deepCopy(previous Previous) Previous {
	previous.Progress = *previous.Progress.DeepCopy()
	previous.StartTime, previous.CompletionTime = previous.StartTime.DeepCopy(), previous.CompletionTime.DeepCopy()
	return previous
}

func copyOf(observed Observed) Observed {
	for _, pods := range []*[]*corev1.Pod{&observed.Launchers, &observed.Workers, &observed.Initializers} {
		*pods = slices.Clone(*pods)
		for i, pod := range *pods {
			(*pods)[i] = pod.DeepCopy()
		}
	}
	return observed
}

func reversed(observed Observed) Observed {
	for _, pods := range [][]*corev1.Pod{observed.Launchers, observed.Workers, observed.Initializers} {
		slices.Reverse(pods)
	}
	return observed
}

// The same observation gives the same status, so that nothing is written.
func TestUnchangedStatusIsNotWritten(t *testing.T) {
	eachRandomJob(t, 10, checkUnchanged)
}

// checkUnchanged checks that a second verdict changes nothing, and that the API server
// accepts the first.
func checkUnchanged(t *testing.T, scene *scene) {
	t.Helper()
	first := scene.storeVerdict()
	// The first verdict on a failure has the statuses of the failed pods, the next does
	// not. And pods are deleted only after the status shows the wait for a quota.
	if first.Stage == plan.Restarting || first.QuotaWait != nil {
		first = scene.storeVerdict()
	}
	trainJob, mpiJob := *scene.trainJob.DeepCopy(), *scene.mpiJob.DeepCopy()
	second := scene.storeVerdict()
	if !equality.Semantic.DeepEqual(trainJob, scene.trainJob) || !equality.Semantic.DeepEqual(mpiJob, scene.mpiJob) {
		t.Errorf("the second look changes the status (-first +second):\n%s%s", cmp.Diff(trainJob.Status, scene.trainJob.Status), cmp.Diff(mpiJob.Status, scene.mpiJob.Status))
	}
	if first.Stage != second.Stage || first.NextCheck != second.NextCheck {
		t.Errorf("stage %s and then %s, checked in %s and then %s", first.Stage, second.Stage, first.NextCheck, second.NextCheck)
	}
	wantStorable(t, scene, first)
}

// wantStorable checks what the API server validates.
func wantStorable(t *testing.T, scene *scene, verdict Verdict) {
	t.Helper()
	if verdict.Phase == training.PhaseFailed && (!isFailureReason(string(verdict.FailureReason)) || verdict.FailureMessage == "") {
		t.Errorf("failed with %q: %s", verdict.FailureReason, verdict.FailureMessage)
	}
	if verdict.Phase != training.PhaseFailed && (verdict.FailureReason != "" || verdict.FailureMessage != "") {
		t.Errorf("%s with %q: %s", verdict.Phase, verdict.FailureReason, verdict.FailureMessage)
	}
	if verdict.NextCheck < 0 {
		t.Errorf("checked in %s", verdict.NextCheck)
	}
	last := -1
	for _, entry := range verdict.Timeline {
		if position := indexOf(entry.Step); position <= last || entry.Time.IsZero() {
			t.Errorf("timeline %v", verdict.Timeline)
		} else {
			last = position
		}
	}
	indexes := map[int32]bool{}
	for _, status := range verdict.WorkerPodStatuses {
		if indexes[status.Index] || status.Index < 0 || status.Index >= scene.job.Worker.Replicas {
			t.Errorf("statuses of workers %v", verdict.WorkerPodStatuses)
		}
		indexes[status.Index] = true
	}
	for _, condition := range scene.trainJob.Status.Conditions {
		if !validReason.MatchString(condition.Reason) || len(condition.Message) > maxMessage || !utf8.ValidString(condition.Message) {
			t.Errorf("condition %+v", condition)
		}
	}
	if scene.job.Kind == job.KindMPIJob {
		wantOneEnd(t, scene)
	}
}

// wantOneEnd checks that at most one of Succeeded and Failed is true: Kueue reads the
// first.
func wantOneEnd(t *testing.T, scene *scene) {
	t.Helper()
	states := map[string]bool{}
	for _, name := range []string{"Pending", "Running", "Succeeded", "Failed"} {
		if condition := scene.condition(name); condition != "" && condition[:4] == "True" {
			states[name] = true
		}
	}
	if len(states) != 1 || !states[string(scene.mpiJob.Status.Phase)] {
		t.Errorf("it is %s, and of its conditions these are true: %v", scene.mpiJob.Status.Phase, fmt.Sprint(states))
	}
}
