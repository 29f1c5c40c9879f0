package jobwatch

import (
	"cmp"
	"slices"
)

// standing is how a position lies to what a store knows.
type positionState int

const (
	// known: the changes after it are all there.
	known positionState = iota
	// older: the changes after it were never known, or are forgotten.
	older
	// ahead: the store has not got there yet.
	ahead
	// lost: it is where the history has a gap.
	lost
)

// resume is the number of the first change after a position.
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

// readAtOnce is how many events a reader takes without letting others go on.
const readBatch = 64

// read is the events that a reader waits for, from a number on, and the number to go
// on with. With none it is what to wait for. It is false if the reader was too slow.
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

// snapshot is the jobs as they are, and the number of the first change after it.
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

// inNamespace is the sorted entries of one namespace, or all. It is valid as long as
// the lock is held.
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
