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

// order is how a list is sorted. Jobs that are equal in it follow by namespace and
// name, so that there is one order only.
type order struct {
	// field is what Sort says, without the "-".
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

// place is where a job stands in an order.
type sortKey struct {
	time int64
	text string
	// index among all jobs of the list by namespace and name, doubled: there is room
	// for one that is not in the list any more.
	index int
}

// place is where a row stands that is the index-th by namespace and name.
func (o order) keyOf(row *jobview.Row, index int) sortKey {
	key := sortKey{index: 2 * index}
	switch o.field {
	case "creationTime":
		key.time = row.CreationTime.Unix()
	case "startTime":
		// What has not started will do so last.
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

// placeOf is where a cursor stands among jobs that are by namespace and name.
func (o order) keyOfCursor(cursor *cursor, entries []*entry) *sortKey {
	key := types.NamespacedName{Namespace: cursor.Namespace, Name: cursor.Name}
	index, found := slices.BinarySearchFunc(entries, key, func(entry *entry, key types.NamespacedName) int { return compareNames(entry.Row, key) })
	cursorKey := &sortKey{time: cursor.Time, text: cursor.Text, index: 2 * index}
	if !found {
		cursorKey.index--
	}
	return cursorKey
}

// placed is an entry that may be on a page.
type sortedEntry struct {
	sortKey
	entry *entry
}

// first is the first entries in this order after a place, of some that are by
// namespace and name, and how many there are after it in all. Most are on other
// pages: what comes after enough others is not sorted any further.
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
