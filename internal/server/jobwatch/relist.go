// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// replace sets all jobs: at the start, and when the API server has lost the history since
// the last version. Then the differences are sent as changes, and the history has a gap.
func (s *store) replace(entries []*entry, resourceVersion string) error {
	version, err := parseVersion(resourceVersion)
	if err != nil {
		return err
	}
	byKey := s.take(entries)
	var different []change
	if s.synced && version > s.newest {
		different = s.difference(byKey, version)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case !s.synced || version < s.newest:
		// The first list; or the cluster was restored to an earlier state, and versions
		// have changed their meaning. All earlier changes are dropped.
		s.changes, s.gaps, s.first, s.floor = nil, nil, s.next()+1, version
	case version > s.newest:
		s.gaps = append(s.gaps, gap{from: s.newest, to: version, first: s.next(), count: len(different)})
		s.remember(different...)
	}
	s.entries, s.sorted = byKey, slices.SortedFunc(maps.Values(byKey), byName)
	s.synced = true
	s.advance(version)
	return nil
}

// take returns the entries by name; unchanged entries are reused.
func (s *store) take(entries []*entry) map[types.NamespacedName]*entry {
	taken := make(map[types.NamespacedName]*entry, len(entries))
	for _, fresh := range entries {
		known := s.entries[fresh.key()]
		switch {
		case known == nil:
		case known.version == fresh.version && known.sameJob(fresh):
			fresh = known
		default:
			fresh.shareSpec(known)
		}
		taken[fresh.key()] = fresh
	}
	return taken
}

// difference returns the changes from the known jobs to the new list. Their order depends
// only on the two: deletions by name, then the others by version.
func (s *store) difference(found map[types.NamespacedName]*entry, version uint64) []change {
	var deleted, changed []*entry
	for _, known := range s.sorted {
		if still := found[known.key()]; still == nil || !still.sameJob(known) {
			deleted = append(deleted, known)
		}
	}
	for key, entry := range found {
		if s.entries[key] != entry {
			changed = append(changed, entry)
		}
	}
	slices.SortFunc(changed, func(left, right *entry) int { return cmp.Compare(left.version, right.version) })

	total, count := len(deleted)+len(changed), 0
	var different []change
	add := func(what EventType, before, after *entry) {
		count++
		resumeAt := position{from: s.newest, version: version, count: count}
		if count == total {
			resumeAt = at(version)
		}
		different = append(different, change{version, newEvent(what, before, after, resumeAt.String())})
	}
	for _, last := range deleted {
		add(Deleted, nil, &entry{Entry: last.Entry, receivedAt: time.Now()})
	}
	for _, entry := range changed {
		if before := s.entries[entry.key()]; before != nil && before.sameJob(entry) {
			add(Modified, before, entry)
		} else {
			add(Added, nil, entry)
		}
	}
	return different
}
