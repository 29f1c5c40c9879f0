// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// order is the sort order of a list. Jobs that are equal in it are sorted by namespace and
// name, so that the order is unique.
type order struct {
	// field is the value of Sort, without the "-".
	field   string
	reverse bool
}

func orderOf(sort string) (order, error) {
	field, reverse := strings.CutPrefix(sort, "-")
	if sort != "" && !slices.Contains(Sorts, field) {
		return order{}, apierror.Invalid("sort", "%q is not a sort order; use one of %s, with a leading - for the reverse order", sort, strings.Join(Sorts, ", "))
	}
	return order{field: field, reverse: reverse}, nil
}

func (o order) String() string {
	if o.reverse {
		return "-" + o.field
	}
	return o.field
}

// sortKey is the position of a job in an order.
type sortKey struct {
	time int64
	text string
	// index by namespace and name among all jobs of the list, doubled: there is room for a
	// job that has been deleted.
	index int
}

// keyOf returns the key of a row, whose index by namespace and name is given.
func (o order) keyOf(row *jobview.Row, index int) sortKey {
	key := sortKey{index: 2 * index}
	switch o.field {
	case "creationTime":
		key.time = row.CreationTime.Unix()
	case "startTime":
		// Jobs that have not started are last.
		key.time = math.MaxInt64
		if row.StartTime != nil {
			key.time = row.StartTime.Unix()
		}
	case "status":
		key.text = row.Status
	case "name":
		key.text = row.Name
	}
	return key
}

func (o order) compare(left, right *sortKey) int {
	result := cmp.Compare(left.time, right.time)
	if result == 0 {
		result = strings.Compare(left.text, right.text)
	}
	if result == 0 {
		result = cmp.Compare(left.index, right.index)
	}
	if o.reverse {
		return -result
	}
	return result
}

// keyOfCursor returns the key of a cursor among jobs sorted by namespace and name.
func (o order) keyOfCursor(cursor *cursor, entries []*entry) *sortKey {
	key := types.NamespacedName{Namespace: cursor.Namespace, Name: cursor.Name}
	index, found := slices.BinarySearchFunc(entries, key, func(entry *entry, key types.NamespacedName) int { return compareNames(entry.Row, key) })
	cursorKey := &sortKey{time: cursor.Time, text: cursor.Text, index: 2 * index}
	if !found {
		cursorKey.index--
	}
	return cursorKey
}

// sortedEntry is an entry with its key.
type sortedEntry struct {
	sortKey
	entry *entry
}

// first returns the first entries after a key, and the number of all entries after it. The
// entries must be sorted by namespace and name. Most entries are on other pages: those
// after the first count are not sorted.
func (o order) first(entries []*entry, after *sortKey, count int) (found []sortedEntry, remaining int) {
	compare := func(a, b sortedEntry) int { return o.compare(&a.sortKey, &b.sortKey) }
	candidates := make([]sortedEntry, 0, 2*count)
	full := false
	for index, entry := range entries {
		candidate := sortedEntry{o.keyOf(entry.Row, index), entry}
		if after != nil && o.compare(&candidate.sortKey, after) <= 0 {
			continue
		}
		remaining++
		if full && o.compare(&candidate.sortKey, &candidates[count-1].sortKey) > 0 {
			continue
		}
		if candidates = append(candidates, candidate); len(candidates) == 2*count {
			slices.SortFunc(candidates, compare)
			candidates, full = candidates[:count], true
		}
	}
	slices.SortFunc(candidates, compare)
	return candidates[:min(count, len(candidates))], remaining
}
