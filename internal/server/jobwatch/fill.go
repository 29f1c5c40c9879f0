package jobwatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// filler asks the API server what happened before a store began, or what it has
// forgotten. After a restart a thousand readers come back at once, each with another
// version: one question, from the oldest version on, answers them all.
type filler struct {
	store  *store
	remote remote

	// turn is held by the one who asks.
	turn chan struct{}
	lock sync.Mutex
	// waiting is from where on those who wait want to know.
	waiting []uint64
	// expired is the newest version that the API server does not know any more.
	expired uint64
}

func newFiller(store *store, remote remote) *filler {
	return &filler{store: store, remote: remote, turn: make(chan struct{}, 1)}
}

// fill lets the store know every change since a version, if anybody does.
func (filler *filler) fill(ctx context.Context, version uint64) error {
	filler.wait(version)
	defer filler.leave(version)
	select {
	case filler.turn <- struct{}{}:
		defer func() { <-filler.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		if _, now := filler.store.resume(at(version)); now != older {
			return nil
		}
		oldest, known := filler.oldest(version)
		if !known {
			return tooOld()
		}
		err := filler.ask(ctx, oldest)
		if isExpired(err) {
			filler.expire(oldest)
			continue
		}
		if err != nil {
			return err
		}
	}
}

func (filler *filler) wait(version uint64) {
	filler.lock.Lock()
	defer filler.lock.Unlock()
	filler.waiting = append(filler.waiting, version)
}

func (filler *filler) leave(version uint64) {
	filler.lock.Lock()
	defer filler.lock.Unlock()
	index := slices.Index(filler.waiting, version)
	filler.waiting = slices.Delete(filler.waiting, index, index+1)
}

// oldest is the oldest version that anybody wants and that may be known yet. It is
// false if the version itself is not.
func (filler *filler) oldest(version uint64) (uint64, bool) {
	filler.lock.Lock()
	defer filler.lock.Unlock()
	if version <= filler.expired {
		return 0, false
	}
	for _, other := range filler.waiting {
		if other > filler.expired {
			version = min(version, other)
		}
	}
	return version, true
}

func (filler *filler) expire(version uint64) {
	filler.lock.Lock()
	defer filler.lock.Unlock()
	filler.expired = max(filler.expired, version)
}

// A watch tells what has happened at once, but not when that is all. The API server
// says how far it has come a little before it ends a watch; so a short one is asked
// for first, and longer ones after it.
const (
	firstFill = 3 * time.Second
	lastFill  = time.Minute
)

// ask reads the changes from a version on until they meet those that the store has.
func (filler *filler) ask(ctx context.Context, since uint64) error {
	if filler.store.full() {
		return tooOld()
	}
	found := &found{store: filler.store, jobs: map[types.NamespacedName]*entry{}}
	for length, reached := firstFill, since; length <= lastFill; length *= 2 {
		seconds := int64(length / time.Second)
		err := filler.remote.follow(ctx, scope{}, reached, following{seconds: &seconds, tell: func(what watch.EventType, object client.Object, version uint64) error {
			reached = version
			if object != nil {
				if err := found.add(what, object); err != nil {
					return err
				}
			}
			met, err := filler.store.prepend(found.changes, since, reached)
			if met {
				return errStopped
			}
			return err
		}})
		if err == errStopped {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return tooOld()
}

// found is changes that have happened before those of a store.
type found struct {
	store   *store
	jobs    map[types.NamespacedName]*entry
	changes []change
}

func (found *found) add(what watch.EventType, object client.Object) error {
	after, err := newEntry(found.store.kind, object, time.Now())
	if err != nil {
		return err
	}
	if len(found.changes) >= found.store.capacity {
		return tooOld()
	}
	key := after.key()
	found.changes = append(found.changes, change{after.version, newEvent(EventType(what), found.jobs[key], after, at(after.version).String())})
	found.jobs[key] = after
	if what == watch.Deleted {
		delete(found.jobs, key)
	}
	return nil
}

// full: what is forgotten has been forgotten for want of room.
func (store *store) full() bool {
	store.lock.RLock()
	defer store.lock.RUnlock()
	return len(store.changes) >= store.capacity
}

// prepend puts changes since a version before those that the store has. It is false
// if they do not reach so far yet.
func (store *store) prepend(changes []change, since, reached uint64) (bool, error) {
	store.lock.Lock()
	defer store.lock.Unlock()
	if reached < store.floor {
		return false, nil
	}
	missing := slices.DeleteFunc(changes, func(change change) bool { return change.version > store.floor })
	if len(missing)+len(store.changes) > store.capacity {
		return false, tooOld()
	}
	store.changes = append(missing, store.changes...)
	store.first -= uint64(len(missing))
	store.floor = min(store.floor, since)
	return true, nil
}
