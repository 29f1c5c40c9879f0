package jobwatch

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// store is the jobs of one kind as they are now, and the last changes to all of them
// in the order in which they happened. client-go's informers would group changes by
// object, and lose that order.
type store struct {
	kind *jobview.Kind
	// capacity is how many changes are kept.
	capacity int
	metrics  *kindMetrics

	lock    sync.RWMutex
	synced  bool
	entries map[types.NamespacedName]*entry
	// sorted is the entries by namespace and name.
	sorted []*entry
	// newest is the version up to which everything is known.
	newest uint64
	// floor is the version since which every change is known.
	floor uint64
	// changes are numbered; first is the number of the oldest one that is kept.
	changes []change
	first   uint64
	gaps    []gap
	// moved is closed, and replaced, whenever newest or the changes have changed.
	moved chan struct{}
}

// change is an event in its place.
type change struct {
	version uint64
	event   *Event
}

// gap is where the cluster's history was lost: the changes between two versions
// are not known, but only what was different at the end.
type gap struct {
	from, to uint64
	// first is the number of the first change that tells the difference, count how
	// many there are.
	first uint64
	count int
}

// firstNumber leaves room for changes that are found to have happened before.
const firstNumber = 1 << 32

func newStore(kind *jobview.Kind, capacity int, metrics *kindMetrics) *store {
	return &store{
		kind: kind, capacity: capacity, metrics: metrics,
		entries: map[types.NamespacedName]*entry{}, first: firstNumber, moved: make(chan struct{}),
	}
}

// put takes a job in as it is now. It, remove, bookmark and replace are called by one
// keeper only, so they may read without the lock what nobody else writes.
func (store *store) put(object client.Object) error {
	after, err := newEntry(store.kind, object, time.Now())
	if err != nil || after.version <= store.newest {
		return err
	}
	what, before := Added, store.entries[after.key()]
	if before != nil {
		what = Modified
		after.shareSpec(before)
	}
	store.publish(after, change{after.version, newEvent(what, before, after, at(after.version).String())})
	return nil
}

// remove takes a job out.
func (store *store) remove(object client.Object) error {
	last, err := newEntry(store.kind, object, time.Now())
	if err != nil || last.version <= store.newest {
		return err
	}
	store.publish(nil, change{last.version, newEvent(Deleted, nil, last, at(last.version).String())})
	return nil
}

// publish makes one change visible; after is nil if the job is gone.
func (store *store) publish(after *entry, what change) {
	store.lock.Lock()
	defer store.lock.Unlock()
	key := types.NamespacedName{Namespace: what.event.Row.Namespace, Name: what.event.Row.Name}
	index, found := slices.BinarySearchFunc(store.sorted, key, func(entry *entry, key types.NamespacedName) int { return compareNames(entry.Row, key) })
	switch {
	case after == nil && found:
		store.sorted = slices.Delete(store.sorted, index, index+1)
		delete(store.entries, key)
	case after != nil && found:
		store.sorted[index], store.entries[key] = after, after
	case after != nil:
		store.sorted = slices.Insert(store.sorted, index, after)
		store.entries[key] = after
	}
	store.remember(what)
	store.advance(what.version)
}

// bookmark is how far the cluster's history has been read, though nothing happened.
func (store *store) bookmark(version uint64) {
	store.lock.Lock()
	defer store.lock.Unlock()
	store.advance(max(version, store.newest))
}

// reached is how far the store has come, once it has begun.
func (store *store) reached() (uint64, bool) {
	store.lock.RLock()
	defer store.lock.RUnlock()
	return store.newest, store.synced
}

// advance tells everybody that everything is known up to a version.
func (store *store) advance(version uint64) {
	store.newest = version
	store.metrics.heard()
	close(store.moved)
	store.moved = make(chan struct{})
}

// remember keeps changes, and forgets the oldest if there are too many. Changes that
// were told together are forgotten together: with only some of them nobody could
// go on.
func (store *store) remember(changes ...change) {
	for _, what := range changes {
		store.metrics.event(what.event.Type)
	}
	store.changes = append(store.changes, changes...)
	for len(store.changes) > store.capacity {
		store.floor = store.changes[0].version
		for len(store.changes) > 0 && store.changes[0].version == store.floor {
			store.changes[0] = change{}
			store.changes = store.changes[1:]
			store.first++
		}
	}
	store.gaps = slices.DeleteFunc(store.gaps, func(gap gap) bool { return gap.to <= store.floor })
}

// next is the number of the change that will come next.
func (store *store) next() uint64 { return store.first + uint64(len(store.changes)) }
