// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// historyLoader reads changes from the API server that happened before the store started,
// or that it no longer has. After a restart a thousand clients resume at once, each from
// another version: one watch, from the oldest version, serves all of them.
type historyLoader struct {
	store  *store
	remote remote

	// slot is held by the caller that reads.
	slot chan struct{}
	lock sync.Mutex
	// waiting are the versions of the callers that wait.
	waiting []uint64
	// expired is the newest version that the API server no longer has.
	expired uint64
}

func newHistoryLoader(store *store, remote remote) *historyLoader {
	return &historyLoader{store: store, remote: remote, slot: make(chan struct{}, 1)}
}

// load adds all changes since a version to the store, if the API server has them.
func (h *historyLoader) load(ctx context.Context, version uint64) error {
	h.wait(version)
	defer h.stopWaiting(version)
	select {
	case h.slot <- struct{}{}:
		defer func() { <-h.slot }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		if _, now := h.store.resume(at(version)); now != older {
			return nil
		}
		oldest, known := h.oldest(version)
		if !known {
			return tooOld()
		}
		err := h.read(ctx, oldest)
		if isExpired(err) {
			h.expire(oldest)
			continue
		}
		if err != nil {
			return err
		}
	}
}

func (h *historyLoader) wait(version uint64) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.waiting = append(h.waiting, version)
}

func (h *historyLoader) stopWaiting(version uint64) {
	h.lock.Lock()
	defer h.lock.Unlock()
	index := slices.Index(h.waiting, version)
	h.waiting = slices.Delete(h.waiting, index, index+1)
}

// oldest returns the oldest version that callers wait for and that may be available. It
// returns false if the version itself has expired.
func (h *historyLoader) oldest(version uint64) (uint64, bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if version <= h.expired {
		return 0, false
	}
	for _, other := range h.waiting {
		if other > h.expired {
			version = min(version, other)
		}
	}
	return version, true
}

func (h *historyLoader) expire(version uint64) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.expired = max(h.expired, version)
}

// A watch sends past changes immediately, but not when they are complete. The API server
// sends a bookmark a little before it ends a watch; so the first watch is short, and the
// next ones are longer.
const (
	firstReadTime = 3 * time.Second
	maxReadTime   = time.Minute
)

// read reads the changes from a version until they meet those in the store.
func (h *historyLoader) read(ctx context.Context, since uint64) error {
	if h.store.full() {
		return tooOld()
	}
	older := &olderChanges{store: h.store, jobs: map[types.NamespacedName]*entry{}}
	for length, reached := firstReadTime, since; length <= maxReadTime; length *= 2 {
		seconds := int64(length / time.Second)
		err := h.remote.follow(ctx, scope{}, reached, watchOptions{seconds: &seconds, handle: func(what watch.EventType, object client.Object, version uint64) error {
			reached = version
			if object != nil {
				if err := older.add(what, object); err != nil {
					return err
				}
			}
			met, err := h.store.prepend(older.changes, since, reached)
			if met {
				return errStopped
			}
			return err
		}})
		if errors.Is(err, errStopped) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return tooOld()
}

// olderChanges are changes before those in a store.
type olderChanges struct {
	store   *store
	jobs    map[types.NamespacedName]*entry
	changes []change
}

func (o *olderChanges) add(what watch.EventType, object client.Object) error {
	after, err := newEntry(o.store.kind, object, time.Now())
	if err != nil {
		return err
	}
	if len(o.changes) >= o.store.capacity {
		return tooOld()
	}
	key := after.key()
	o.changes = append(o.changes, change{after.version, newEvent(EventType(what), o.jobs[key], after, at(after.version).String())})
	o.jobs[key] = after
	if what == watch.Deleted {
		delete(o.jobs, key)
	}
	return nil
}

// full tells whether the store has dropped changes because it is full.
func (s *store) full() bool {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return len(s.changes) >= s.capacity
}

// prepend adds older changes to the store. It returns false if they do not reach the
// store's first change yet.
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
