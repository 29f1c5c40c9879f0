package jobwatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// replace takes in all jobs that there are: at the start, and when the cluster does
// not know any more what happened since the last version. Then what is different is
// told, and there is a gap in the history.
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
		// The first list; or the cluster was set back to an earlier state, and no
		// version means what it meant. All numbers before are forgotten.
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

// take is the entries by their names; those that are known already are kept.
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

// difference is what turns the jobs that are known into those that were found. Its
// order depends on nothing but the two: deletions by name, then the others by version.
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
