package operator

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

var ofJob = writtenKey{job: "a"}

func storedJob(uid types.UID, version string, phase training.Phase) *v2beta1.MPIJob {
	stored := &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{
		UID: uid, ResourceVersion: version, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "trireme"}},
	}}
	stored.Status.Phase = phase
	return stored
}

// A job is what was stored last, whether the cache shows it yet or not.
func TestNewest(t *testing.T) {
	const written, cached = training.PhaseRunning, training.PhasePending
	tests := map[string]struct {
		uid     types.UID
		version string
		want    training.Phase
	}{
		"the cache is behind":                     {"a", "99", written},
		"the cache has what was written":          {"a", "100", cached},
		"somebody has written since":              {"a", "101", cached},
		"another job":                             {"b", "99", cached},
		"a version that says nothing about order": {"a", "new", cached},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			recently := &recently{}
			recently.wrote(ofJob, storedJob("a", "100", written))
			found := recently.newest(ofJob, storedJob(test.uid, test.version, cached)).(*v2beta1.MPIJob)
			if found.Status.Phase != test.want {
				t.Errorf("it is %s, want %s", found.Status.Phase, test.want)
			}
			if test.want == written && len(found.ManagedFields) > 0 {
				t.Error("it has managed fields, which the cache drops")
			}
		})
	}
}

// A job and its workload are remembered apart.
func TestNewestWorkload(t *testing.T) {
	recently := &recently{}
	ofWorkload := writtenKey{job: "a", isWorkload: true}
	recently.wrote(ofWorkload, storedJob("w", "100", training.PhaseRunning))
	if found := recently.newest(ofJob, storedJob("a", "99", training.PhasePending)).(*v2beta1.MPIJob); found.UID != "a" {
		t.Errorf("instead of the job it is %s", found.UID)
	}
	if found := recently.newest(ofWorkload, storedJob("w", "99", training.PhasePending)).(*v2beta1.MPIJob); found.Status.Phase != training.PhaseRunning {
		t.Errorf("the workload is %s", found.Status.Phase)
	}
	if found := recently.newest(ofWorkload, storedJob("another", "1", training.PhasePending)).(*v2beta1.MPIJob); found.UID != "another" {
		t.Errorf("instead of another workload it is %s", found.UID)
	}
}

// What the cache has shown is not kept: there may be many jobs.
func TestNewestIsForgotten(t *testing.T) {
	for name, forget := range map[string]func(*recently){
		"when the cache shows it": func(recently *recently) { recently.newest(ofJob, storedJob("a", "100", "")) },
		"when the job is gone":    func(recently *recently) { recently.forgetAll("a") },
	} {
		t.Run(name, func(t *testing.T) {
			recently := &recently{}
			recently.wrote(ofJob, storedJob("a", "100", ""))
			forget(recently)
			if len(recently.written) != 0 {
				t.Errorf("%d jobs are kept", len(recently.written))
			}
		})
	}
}

// Who gets a job must be free to change it.
func TestNewestIsACopy(t *testing.T) {
	recently := &recently{}
	recently.wrote(ofJob, storedJob("a", "100", training.PhaseRunning))
	recently.newest(ofJob, storedJob("a", "99", "")).(*v2beta1.MPIJob).Status.Phase = training.PhaseFailed
	if phase := recently.newest(ofJob, storedJob("a", "99", "")).(*v2beta1.MPIJob).Status.Phase; phase != training.PhaseRunning {
		t.Errorf("it is %s after somebody else has changed their copy", phase)
	}
}

func TestIsDue(t *testing.T) {
	var recently recently
	begin := time.Unix(1000, 0)
	for _, look := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {10 * time.Second, false}, {15 * time.Second, true}, {20 * time.Second, false}, {31 * time.Second, true}} {
		if got := recently.isDue("a", begin.Add(look.after), 15*time.Second); got != look.want {
			t.Errorf("due after %s: %t, want %t", look.after, got, look.want)
		}
	}
	recently.forgetAll("a")
	if recently.isDue("a", begin.Add(time.Hour), 15*time.Second) {
		t.Error("due for a job that was never looked at")
	}
}

// How many pods there are is written when it has been true for a moment, and not with
// each of them.
func TestAreNews(t *testing.T) {
	recently := &recently{}
	start := time.Unix(1_700_000_000, 0)
	if _, known := recently.areNews("a", 0, start); known {
		t.Error("a job of which nothing was created is known")
	}
	recently.add("a", plan.State{Stage: plan.Active}, start)
	steps := []struct {
		after time.Duration
		pods  int
		told  bool
		want  bool
	}{
		{after: 0, pods: 0, want: true},
		{after: comingPatience - 1, pods: 1, want: true},
		{after: comingPatience, pods: 1, told: true, want: false},
		{after: 10 * comingPatience, pods: 1, want: false},
		{after: 11 * comingPatience, pods: 2, want: true},
		{after: 12*comingPatience - 1, pods: 5, want: true},
		{after: 12 * comingPatience, pods: 6, told: true, want: false},
		{after: 12*comingPatience + 1, pods: 6, want: false},
	}
	for i, step := range steps {
		if news, known := recently.areNews("a", step.pods, start.Add(step.after)); news != step.want || !known {
			t.Errorf("step %d, %d pods after %s: news %t, known %t, want %t", i, step.pods, step.after, news, known, step.want)
		}
		if step.told {
			recently.tell("a", step.pods)
		}
	}
}
