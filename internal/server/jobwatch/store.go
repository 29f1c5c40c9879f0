// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// store has the current jobs of one kind, and the last changes to all of them in order.
// client-go's informers group changes by object, and lose that order.
type store struct {
	kind *jobview.Kind
	// capacity is the number of changes to keep.
	capacity int
	metrics  *kindMetrics

	lock    sync.RWMutex
	synced  bool
	entries map[types.NamespacedName]*entry
	// sorted has the entries by namespace and name.
	sorted []*entry
	// newest is the version up to which all changes are known.
	newest uint64
	// floor is the version since which all changes are known.
	floor uint64
	// changes are numbered; first is the number of the oldest one in the store.
	changes []change
	first   uint64
	gaps    []gap
	// changed is closed and replaced whenever newest or the changes have changed.
	changed chan struct{}
}

// change is an event with its version.
type change struct {
	version uint64
	event   *Event
}

// gap is where the API server's history was lost: between two versions only the
// differences are known.
type gap struct {
	from, to uint64
	// first is the number of the first change in the gap, count the number of changes.
	first uint64
	count int
}

// firstNumber leaves room for older changes that are prepended later.
const firstNumber = 1 << 32

func newStore(kind *jobview.Kind, capacity int, metrics *kindMetrics) *store {
	return &store{
		kind: kind, capacity: capacity, metrics: metrics,
		entries: map[types.NamespacedName]*entry{}, first: firstNumber, changed: make(chan struct{}),
	}
}

// put stores a job. put, remove, bookmark and replace are called by one syncer only, so
// they may read without the lock what nobody else writes.
func (s *store) put(object client.Object) error {
	after, err := newEntry(s.kind, object, time.Now())
	if err != nil || after.version <= s.newest {
		return err
	}
	what, before := Added, s.entries[after.key()]
	if before != nil {
		what = Modified
		after.shareSpec(before)
	}
	s.publish(after, change{after.version, newEvent(what, before, after, at(after.version).String())})
	return nil
}

// remove removes a job.
func (s *store) remove(object client.Object) error {
	last, err := newEntry(s.kind, object, time.Now())
	if err != nil || last.version <= s.newest {
		return err
	}
	s.publish(nil, change{last.version, newEvent(Deleted, nil, last, at(last.version).String())})
	return nil
}

// publish makes a change visible; after is nil if the job was deleted.
func (s *store) publish(after *entry, what change) {
	s.lock.Lock()
	defer s.lock.Unlock()
	key := types.NamespacedName{Namespace: what.event.Row.Namespace, Name: what.event.Row.Name}
	index, found := slices.BinarySearchFunc(s.sorted, key, func(entry *entry, key types.NamespacedName) int { return compareNames(entry.Row, key) })
	switch {
	case after == nil && found:
		s.sorted = slices.Delete(s.sorted, index, index+1)
		delete(s.entries, key)
	case after != nil && found:
		s.sorted[index], s.entries[key] = after, after
	case after != nil:
		s.sorted = slices.Insert(s.sorted, index, after)
		s.entries[key] = after
	}
	s.remember(what)
	s.advance(what.version)
}

// bookmark advances the version without a change.
func (s *store) bookmark(version uint64) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.advance(max(version, s.newest))
}

// reached returns the current version, and whether the store has synced.
func (s *store) reached() (uint64, bool) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return s.newest, s.synced
}

// advance sets the version up to which all changes are known, and wakes all watches.
func (s *store) advance(version uint64) {
	s.newest = version
	s.metrics.received()
	close(s.changed)
	s.changed = make(chan struct{})
}

// remember adds changes, and drops the oldest if there are too many. Changes with the same
// version are dropped together: no client could resume between them.
func (s *store) remember(changes ...change) {
	for _, what := range changes {
		s.metrics.event(what.event.Type)
	}
	s.changes = append(s.changes, changes...)
	for len(s.changes) > s.capacity {
		s.floor = s.changes[0].version
		for len(s.changes) > 0 && s.changes[0].version == s.floor {
			s.changes[0] = change{}
			s.changes = s.changes[1:]
			s.first++
		}
	}
	s.gaps = slices.DeleteFunc(s.gaps, func(gap gap) bool { return gap.to <= s.floor })
}

// next returns the number of the next change.
func (s *store) next() uint64 { return s.first + uint64(len(s.changes)) }
