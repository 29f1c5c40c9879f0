// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"reflect"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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

// A write is newer than the cache until the cache shows it.
func TestNewest(t *testing.T) {
	const written, cached = training.PhaseRunning, training.PhasePending
	tests := map[string]struct {
		uid     types.UID
		version string
		want    training.Phase
	}{
		"the cache is behind":                     {"a", "99", written},
		"the cache has what was written":          {"a", "100", cached},
		"another client wrote since":              {"a", "101", cached},
		"another job":                             {"b", "99", cached},
		"a version that says nothing about order": {"a", "new", cached},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			writes := &writes{}
			writes.add(ofJob, storedJob("a", "100", written))
			found := writes.newest(ofJob, storedJob(test.uid, test.version, cached)).(*v2beta1.MPIJob)
			if found.Status.Phase != test.want {
				t.Errorf("it is %s, want %s", found.Status.Phase, test.want)
			}
			if test.want == written && len(found.ManagedFields) > 0 {
				t.Error("it has managed fields, which the cache drops")
			}
		})
	}
}

func TestNewestWorkload(t *testing.T) {
	writes := &writes{}
	ofWorkload := writtenKey{job: "a", isWorkload: true}
	writes.add(ofWorkload, storedJob("w", "100", training.PhaseRunning))
	if found := writes.newest(ofJob, storedJob("a", "99", training.PhasePending)).(*v2beta1.MPIJob); found.UID != "a" {
		t.Errorf("instead of the job it is %s", found.UID)
	}
	if found := writes.newest(ofWorkload, storedJob("w", "99", training.PhasePending)).(*v2beta1.MPIJob); found.Status.Phase != training.PhaseRunning {
		t.Errorf("the workload is %s", found.Status.Phase)
	}
	if found := writes.newest(ofWorkload, storedJob("another", "1", training.PhasePending)).(*v2beta1.MPIJob); found.UID != "another" {
		t.Errorf("instead of another workload it is %s", found.UID)
	}
}

// There may be many jobs: what the cache shows is not kept.
func TestNewestIsForgotten(t *testing.T) {
	for name, forget := range map[string]func(*writes){
		"when the cache shows it":  func(w *writes) { w.newest(ofJob, storedJob("a", "100", "")) },
		"when the job was deleted": func(w *writes) { w.forget("a") },
	} {
		t.Run(name, func(t *testing.T) {
			writes := &writes{}
			writes.add(ofJob, storedJob("a", "100", ""))
			forget(writes)
			if len(writes.objects) != 0 {
				t.Errorf("%d jobs are kept", len(writes.objects))
			}
		})
	}
}

func TestNewestIsACopy(t *testing.T) {
	writes := &writes{}
	writes.add(ofJob, storedJob("a", "100", training.PhaseRunning))
	writes.newest(ofJob, storedJob("a", "99", "")).(*v2beta1.MPIJob).Status.Phase = training.PhaseFailed
	if phase := writes.newest(ofJob, storedJob("a", "99", "")).(*v2beta1.MPIJob).Status.Phase; phase != training.PhaseRunning {
		t.Errorf("it is %s after a caller changed its copy", phase)
	}
}

func TestNudgeIsDue(t *testing.T) {
	var nudges nudges
	begin := time.Unix(1000, 0)
	for _, look := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {10 * time.Second, false}, {15 * time.Second, true}, {20 * time.Second, false}, {31 * time.Second, true}} {
		if got := nudges.isDue("a", begin.Add(look.after), 15*time.Second); got != look.want {
			t.Errorf("due after %s: %t, want %t", look.after, got, look.want)
		}
	}
	nudges.forget("a")
	if nudges.isDue("a", begin.Add(time.Hour), 15*time.Second) {
		t.Error("due at the first call for a job")
	}
}

// The status shows a new number of pods once it is podCountPatience old.
func TestPodCountIsChanging(t *testing.T) {
	counts := &podCounts{}
	start := time.Unix(1_700_000_000, 0)
	if _, known := counts.isChanging("a", 0, start); known {
		t.Error("a job without created pods is known")
	}
	counts.wrote("a", 3)
	if _, known := counts.isChanging("a", 3, start); known {
		t.Error("a status makes a job known")
	}
	counts.change("a", start)
	steps := []struct {
		after time.Duration
		pods  int
		wrote bool
		want  bool
	}{
		{after: 0, pods: 0, want: true},
		{after: podCountPatience - 1, pods: 1, want: true},
		{after: podCountPatience, pods: 1, wrote: true, want: false},
		{after: 10 * podCountPatience, pods: 1, want: false},
		{after: 11 * podCountPatience, pods: 2, want: true},
		{after: 12*podCountPatience - 1, pods: 5, want: true},
		{after: 12 * podCountPatience, pods: 6, wrote: true, want: false},
		{after: 12*podCountPatience + 1, pods: 6, want: false},
	}
	for i, step := range steps {
		if changing, known := counts.isChanging("a", step.pods, start.Add(step.after)); changing != step.want || !known {
			t.Errorf("step %d, %d pods after %s: changing %t, known %t, want %t", i, step.pods, step.after, changing, known, step.want)
		}
		if step.wrote {
			counts.wrote("a", step.pods)
		}
	}
}

// Every part of the memory forgets a deleted job, also parts that are added later.
func TestEverythingIsForgotten(t *testing.T) {
	m := &memory{}
	now := time.Now()
	m.creations.add("a", plan.State{Stage: plan.Active}, now)
	m.podCounts.change("a", now)
	m.deletions.add("a", &corev1.Secret{})
	m.writes.add(writtenKey{job: "a"}, &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{UID: "a"}})
	m.writes.add(writtenKey{job: "a", isWorkload: true}, &batchv1.Job{})
	m.nudges.isDue("a", now, time.Second)
	m.publications.add("a", nil, now)
	m.obstacles.put("a", &temporaryObstacle{})
	for name, length := range lengths(t, m) {
		if length == 0 {
			t.Errorf("%s has no entries: this test does not fill it", name)
		}
	}
	m.forget("a")
	for name, length := range lengths(t, m) {
		if length != 0 {
			t.Errorf("%s keeps %d entries of a deleted job", name, length)
		}
	}
}

// lengths are the sizes of the maps in a memory, by the name of its fields.
func lengths(t *testing.T, m *memory) map[string]int {
	t.Helper()
	found := map[string]int{}
	var count func(name string, value reflect.Value)
	count = func(name string, value reflect.Value) {
		switch value.Kind() {
		case reflect.Map:
			found[name] += value.Len()
		case reflect.Struct:
			for i := range value.NumField() {
				count(name, value.Field(i))
			}
		}
	}
	fields := reflect.ValueOf(m).Elem()
	for i := range fields.NumField() {
		count(fields.Type().Field(i).Name, fields.Field(i))
	}
	if len(found) != fields.NumField() {
		t.Fatalf("maps in %d of %d fields", len(found), fields.NumField())
	}
	return found
}
