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
type historyLoader struct {
	store  *store
	remote remote

	// turn is held by the one who asks.
	slot chan struct{}
	lock sync.Mutex
	// waiting is from where on those who wait want to know.
	waiting []uint64
	// expired is the newest version that the API server does not know any more.
	expired uint64
}

func newHistoryLoader(store *store, remote remote) *historyLoader {
	return &historyLoader{store: store, remote: remote, slot: make(chan struct{}, 1)}
}

// fill lets the store know every change since a version, if anybody does.
func (f *historyLoader) load(ctx context.Context, version uint64) error {
	f.wait(version)
	defer f.leave(version)
	select {
	case f.slot <- struct{}{}:
		defer func() { <-f.slot }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		if _, now := f.store.resume(at(version)); now != older {
			return nil
		}
		oldest, known := f.oldest(version)
		if !known {
			return tooOld()
		}
		err := f.read(ctx, oldest)
		if isExpired(err) {
			f.expire(oldest)
			continue
		}
		if err != nil {
			return err
		}
	}
}

func (f *historyLoader) wait(version uint64) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.waiting = append(f.waiting, version)
}

func (f *historyLoader) leave(version uint64) {
	f.lock.Lock()
	defer f.lock.Unlock()
	index := slices.Index(f.waiting, version)
	f.waiting = slices.Delete(f.waiting, index, index+1)
}

// oldest is the oldest version that anybody wants and that may be known yet. It is
// false if the version itself is not.
func (f *historyLoader) oldest(version uint64) (uint64, bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if version <= f.expired {
		return 0, false
	}
	for _, other := range f.waiting {
		if other > f.expired {
			version = min(version, other)
		}
	}
	return version, true
}

func (f *historyLoader) expire(version uint64) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.expired = max(f.expired, version)
}

// A watch tells what has happened at once, but not when that is all. The API server
// says how far it has come a little before it ends a watch; so a short one is asked
// for first, and longer ones after it.
const (
	firstReadTime = 3 * time.Second
	maxReadTime   = time.Minute
)

// ask reads the changes from a version on until they meet those that the store has.
func (f *historyLoader) read(ctx context.Context, since uint64) error {
	if f.store.full() {
		return tooOld()
	}
	older := &olderChanges{store: f.store, jobs: map[types.NamespacedName]*entry{}}
	for length, reached := firstReadTime, since; length <= maxReadTime; length *= 2 {
		seconds := int64(length / time.Second)
		err := f.remote.follow(ctx, scope{}, reached, watchOptions{seconds: &seconds, handle: func(what watch.EventType, object client.Object, version uint64) error {
			reached = version
			if object != nil {
				if err := older.add(what, object); err != nil {
					return err
				}
			}
			met, err := f.store.prepend(older.changes, since, reached)
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
type olderChanges struct {
	store   *store
	jobs    map[types.NamespacedName]*entry
	changes []change
}

func (f *olderChanges) add(what watch.EventType, object client.Object) error {
	after, err := newEntry(f.store.kind, object, time.Now())
	if err != nil {
		return err
	}
	if len(f.changes) >= f.store.capacity {
		return tooOld()
	}
	key := after.key()
	f.changes = append(f.changes, change{after.version, newEvent(EventType(what), f.jobs[key], after, at(after.version).String())})
	f.jobs[key] = after
	if what == watch.Deleted {
		delete(f.jobs, key)
	}
	return nil
}

// full: what is forgotten has been forgotten for want of room.
func (s *store) full() bool {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return len(s.changes) >= s.capacity
}

// prepend puts changes since a version before those that the store has. It is false
// if they do not reach so far yet.
func (s *store) prepend(changes []change, since, reached uint64) (bool, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if reached < s.floor {
		return false, nil
	}
	missing := slices.DeleteFunc(changes, func(change change) bool { return change.version > s.floor })
	if len(missing)+len(s.changes) > s.capacity {
		return false, tooOld()
	}
	s.changes = append(missing, s.changes...)
	s.first -= uint64(len(missing))
	s.floor = min(s.floor, since)
	return true, nil
}
