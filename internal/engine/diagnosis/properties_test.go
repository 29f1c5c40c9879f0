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

// seeds of the jobs that are made at random: the same ones each time. A failure
// names its own.
const seeds = 150

// eachChance has every property looked at with many jobs of both kinds, each
// seen many times over. Jobs are suspended and resumed between.
func eachChance(t *testing.T, looks int, check func(t *testing.T, scene *scene)) {
	for _, kind := range kinds {
		for seed := range uint64(seeds) {
			chance := newChance(seed, kind)
			scene := &scene{t: t, job: chance.job}
			scene.trainJob.CreationTimestamp, scene.mpiJob.CreationTimestamp = stamp(submitted), stamp(submitted)
			for look := range looks {
				scene.observed = chance.look()
				scene.free, scene.coming = chance.IntN(3), chance.once(3)
				scene.job.Suspended = chance.once(10)
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

// No order of observations moves a job out of a terminal phase, or changes what
// was said of its end.
func TestTerminalPhaseIsFinal(t *testing.T) {
	phases, reasons := map[training.Phase]int{}, map[training.FailureReason]int{}
	eachChance(t, 20, func(t *testing.T, scene *scene) {
		before := scene.previous()
		verdict := scene.settle()
		after := scene.previous()
		phases[after.Phase]++
		reasons[after.FailureReason]++
		if hasEnded(verdict) != (verdict.Stage == plan.Finished) || hasEnded(verdict) != (after.CompletionTime != nil) {
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
	// Else the property would say little.
	t.Logf("phases %v, reasons %v", phases, reasons)
	if len(phases) != 4 || len(reasons) != 8 {
		t.Errorf("only phases %v and reasons %v came up", phases, reasons)
	}
}

// The same input gives the same verdict, in whatever order the cache lists pods,
// and stays as it was.
func TestVerdictIsDeterministic(t *testing.T) {
	eachChance(t, 10, func(t *testing.T, scene *scene) {
		previous := scene.previous()
		j, before, observed := *scene.job, deepCopy(previous), copyOf(scene.observed)
		first := Of(scene.job, previous, scene.observed)
		wantEqual(t, "what was seen, before and after", observed, scene.observed)
		wantEqual(t, "the status, before and after", before, previous)
		wantEqual(t, "the job, before and after", &j, scene.job)
		wantEqual(t, "the verdict, first and again", first, Of(scene.job, before, observed))
		wantEqual(t, "the verdict, first and with pods in another order", first, Of(scene.job, before, reversed(observed)))
		scene.settle()
	})
}

// wantEqual shows a difference only if there is one: that takes its time.
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

// A job at rest costs no write: what was said of the same observation is said
// again.
func TestUnchangedStatusIsNotWritten(t *testing.T) {
	eachChance(t, 10, atRest)
}

// atRest checks that a second look changes nothing, and that what the first one
// wrote is fit to be stored.
func atRest(t *testing.T, scene *scene) {
	t.Helper()
	first := scene.settle()
	// The look at a failure tells of the pods that failed, the next one does not; and pods
	// are given up only after the status says that the job waits for a quota.
	if first.Stage == plan.Restarting || first.QuotaWait != nil {
		first = scene.settle()
	}
	trainJob, mpiJob := *scene.trainJob.DeepCopy(), *scene.mpiJob.DeepCopy()
	second := scene.settle()
	if !equality.Semantic.DeepEqual(trainJob, scene.trainJob) || !equality.Semantic.DeepEqual(mpiJob, scene.mpiJob) {
		t.Errorf("the second look changes the status (-first +second):\n%s%s", cmp.Diff(trainJob.Status, scene.trainJob.Status), cmp.Diff(mpiJob.Status, scene.mpiJob.Status))
	}
	if first.Stage != second.Stage || first.NextCheck != second.NextCheck {
		t.Errorf("stage %s and then %s, looked at in %s and then %s", first.Stage, second.Stage, first.NextCheck, second.NextCheck)
	}
	wantStorable(t, scene, first)
}

// wantStorable checks what the API server checks.
func wantStorable(t *testing.T, scene *scene, verdict Verdict) {
	t.Helper()
	if verdict.Phase == training.PhaseFailed && (!isFailureReason(string(verdict.FailureReason)) || verdict.FailureMessage == "") {
		t.Errorf("failed with %q: %s", verdict.FailureReason, verdict.FailureMessage)
	}
	if verdict.Phase != training.PhaseFailed && (verdict.FailureReason != "" || verdict.FailureMessage != "") {
		t.Errorf("%s with %q: %s", verdict.Phase, verdict.FailureReason, verdict.FailureMessage)
	}
	if verdict.NextCheck < 0 {
		t.Errorf("looked at in %s", verdict.NextCheck)
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

// wantOneEnd: Kueue reads the first of Succeeded and Failed that is true.
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
