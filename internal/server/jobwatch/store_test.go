// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

func jobAt(version int, name, readyWorkers string) *v2beta1.MPIJob {
	job := mpiJob("blue", name)
	job.UID, job.ResourceVersion, job.Status.ReadyWorkers = "uid-of-"+job.UID, strconv.Itoa(version), readyWorkers
	if readyWorkers != "" {
		job.Status.WorkerCount = 2
	}
	return job
}

func newTestStore(tb testing.TB, capacity int) *store {
	tb.Helper()
	return newStore(jobview.MPIJobs, capacity, newMetrics(nil).of(jobview.MPIJobs))
}

func entriesOf(tb testing.TB, objects ...client.Object) (entries []*entry) {
	tb.Helper()
	for _, object := range objects {
		one, err := newEntry(jobview.MPIJobs, object, time.Now())
		must(tb, err)
		entries = append(entries, one)
	}
	return entries
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// storeWithGap listed at 100, received a change at 102 and a bookmark at 105. It has no
// history until 110: there, b was deleted, a changed, c and d created. A change at 112
// followed.
func storeWithGap(tb testing.TB) *store {
	tb.Helper()
	store := newTestStore(tb, 100)
	must(tb, store.replace(entriesOf(tb, jobAt(90, "a", ""), jobAt(91, "b", "")), "100"))
	must(tb, store.put(jobAt(102, "a", "1/2")))
	store.bookmark(105)
	must(tb, store.replace(entriesOf(tb, jobAt(109, "a", "2/2"), jobAt(107, "c", ""), jobAt(108, "d", "")), "110"))
	must(tb, store.put(jobAt(112, "c", "1/2")))
	return store
}

// after returns the changes for a client at a position.
func after(t *testing.T, store *store, text string) ([]string, positionState) {
	t.Helper()
	seen, err := parsePosition(text)
	must(t, err)
	next, where := store.resume(seen)
	if where != known {
		return nil, where
	}
	events, _, _, _ := store.read(next, Watch{})
	var told []string
	for _, event := range events {
		told = append(told, fmt.Sprintf("%s %s %s", event.Type, event.Row.Name, event.ResourceVersion))
	}
	return told, where
}

func TestResumeAtGap(t *testing.T) {
	store := storeWithGap(t)
	difference := []string{"DELETED b 105-110-1", "ADDED c 105-110-2", "ADDED d 105-110-3", "MODIFIED a 110"}
	last := "MODIFIED c 112"
	all := append([]string{"MODIFIED a 102"}, append(difference, last)...)
	for since, want := range map[string]struct {
		told  []string
		where positionState
	}{
		"99":  {nil, older},
		"100": {all, known},
		"101": {all, known},
		"102": {all[1:], known},
		"105": {all[1:], known},
		// Another replica may have sent a change with this version, which is unknown here.
		"106":       {nil, lost},
		"109":       {nil, lost},
		"110":       {[]string{last}, known},
		"111":       {[]string{last}, known},
		"112":       {nil, known},
		"113":       {nil, ahead},
		"105-110-1": {append(difference[1:4:4], last), known},
		"105-110-3": {append(difference[3:4:4], last), known},
		// The last of them has the version 110.
		"105-110-4": {nil, lost},
		"104-110-1": {nil, lost},
		"105-111-1": {nil, lost},
	} {
		t.Run(since, func(t *testing.T) {
			told, where := after(t, store, since)
			if difference := cmp.Diff(want.told, told); difference != "" || where != want.where {
				t.Errorf("standing %d, want %d:\n%s", where, want.where, difference)
			}
		})
	}
}

// TestMergedChangesAreDroppedTogether: with only some of them, a client would miss
// the others.
func TestMergedChangesAreDroppedTogether(t *testing.T) {
	store := storeWithGap(t)
	store.capacity = 6
	must(t, store.put(jobAt(113, "c", "2/2")))
	if told, _ := after(t, store, "105"); len(told) != 6 {
		t.Errorf("after 105: %q", told)
	}
	must(t, store.put(jobAt(114, "c", "1/2")))
	if len(store.changes) != 3 {
		t.Errorf("%d changes are left: those at 112, 113 and 114, and some of those that were told together", len(store.changes))
	}
	for since, want := range map[string]positionState{"105": older, "105-110-2": lost, "109": older, "110": known, "113": known} {
		if told, where := after(t, store, since); where != want {
			t.Errorf("after %s: standing %d, want %d, %q", since, where, want, told)
		}
	}
}

func TestLateChangesAreIgnored(t *testing.T) {
	store := storeWithGap(t)
	before := store.next()
	must(t, store.put(jobAt(112, "c", "1/2")))
	must(t, store.remove(jobAt(111, "c", "1/2")))
	store.bookmark(50)
	if store.next() != before || store.newest != 112 || len(store.sorted) != 3 {
		t.Errorf("next is %d, want %d; newest is %d; %d jobs", store.next(), before, store.newest, len(store.sorted))
	}
}

// TestClusterRestore: after a restore, versions have another meaning.
func TestClusterRestore(t *testing.T) {
	store := storeWithGap(t)
	number := store.next()
	must(t, store.replace(entriesOf(t, jobAt(90, "a", "")), "95"))
	if _, _, _, kept := store.read(number, Watch{}); kept {
		t.Error("a reader goes on as if nothing had happened")
	}
	for since, want := range map[string]positionState{"94": older, "95": known, "112": ahead, "105-110-1": lost} {
		if _, where := after(t, store, since); where != want {
			t.Errorf("after %s: standing %d, want %d", since, where, want)
		}
	}
}

func TestVersionsOfAJobShareTheirSpec(t *testing.T) {
	store := newTestStore(t, 10)
	first := jobAt(90, "a", "")
	first.Spec.MPIReplicaSpecs = map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{v2beta1.MPIReplicaTypeWorker: {}}
	must(t, store.replace(entriesOf(t, first), "100"))
	second := first.DeepCopy()
	second.ResourceVersion = "101"
	must(t, store.put(second))
	if second.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] != first.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] {
		t.Error("a change of the status keeps a second spec in memory")
	}
	third := first.DeepCopy()
	third.ResourceVersion, third.Generation = "102", 2
	must(t, store.put(third))
	if third.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] == first.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] {
		t.Error("a change of the spec is lost")
	}
}
