// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"cmp"
	"slices"
)

// positionState compares a position with the store's history.
type positionState int

const (
	// known: all changes after it are in the store.
	known positionState = iota
	// older: the changes after it are not in the store.
	older
	// ahead: the store has not reached it yet.
	ahead
	// lost: it is in a gap of the history.
	lost
)

// resume returns the number of the first change after a position.
func (s *store) resume(last position) (uint64, positionState) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	if last.count > 0 {
		for _, gap := range s.gaps {
			if gap.from == last.from && gap.to == last.version && last.count < gap.count {
				return gap.first + uint64(last.count), known
			}
		}
		return 0, lost
	}
	if last.version > s.newest {
		return 0, ahead
	}
	if last.version < s.floor {
		return 0, older
	}
	for _, gap := range s.gaps {
		if gap.from < last.version && last.version < gap.to {
			return 0, lost
		}
	}
	index, _ := slices.BinarySearchFunc(s.changes, last.version, func(change change, version uint64) int {
		if change.version <= version {
			return -1
		}
		return 1
	})
	return s.first + uint64(index), known
}

// readBatch is the number of events that are read under one lock.
const readBatch = 64

// read returns the events for a watch from a number, and the next number. If there are
// none, wait is closed at the next change. It returns false if the client was too slow.
func (s *store) read(from uint64, watch Watch) (events []*Event, next uint64, wait <-chan struct{}, available bool) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	if from < s.first {
		return nil, 0, nil, false
	}
	for next = from; next < s.next() && len(events) < readBatch; next++ {
		if event := s.changes[next-s.first].event; watch.wants(event) {
			events = append(events, event)
		}
	}
	return events, next, s.changed, true
}

func (w *Watch) wants(event *Event) bool {
	return cmp.Or(w.Namespace, event.Row.Namespace) == event.Row.Namespace && cmp.Or(w.Name, event.Row.Name) == event.Row.Name
}

// snapshot returns the current jobs, and the number of the first change after them.
func (s *store) snapshot(watch Watch) (jobs []*entry, version, next uint64) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	for _, entry := range s.inNamespace(watch.Namespace) {
		if cmp.Or(watch.Name, entry.Row.Name) == entry.Row.Name {
			jobs = append(jobs, entry)
		}
	}
	return jobs, s.newest, s.next()
}

// inNamespace returns the sorted entries of one namespace, or all. It is valid while the
// lock is held.
func (s *store) inNamespace(namespace string) []*entry {
	if namespace == "" {
		return s.sorted
	}
	begin, _ := slices.BinarySearchFunc(s.sorted, namespace, func(entry *entry, namespace string) int { return cmp.Compare(entry.Row.Namespace, namespace) })
	length, _ := slices.BinarySearchFunc(s.sorted[begin:], namespace, func(entry *entry, namespace string) int {
		if entry.Row.Namespace == namespace {
			return -1
		}
		return 1
	})
	return s.sorted[begin : begin+length]
}
