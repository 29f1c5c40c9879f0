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
	field     string
	backwards bool
}

func orderOf(sort string) (order, error) {
	field, backwards := strings.CutPrefix(sort, "-")
	if sort != "" && !slices.Contains(Sorts, field) {
		return order{}, apierror.Invalid("sort", "%q is not a sort order; use one of %s, with a leading - for the reverse order", sort, strings.Join(Sorts, ", "))
	}
	return order{field: field, backwards: backwards}, nil
}

func (o order) String() string {
	if o.backwards {
		return "-" + o.field
	}
	return o.field
}

// place is where a job stands in an order.
type place struct {
	time int64
	text string
	// index among all jobs of the list by namespace and name, doubled: there is room
	// for one that is not in the list any more.
	index int
}

// place is where a row stands that is the index-th by namespace and name.
func (o order) place(row *jobview.Row, index int) place {
	at := place{index: 2 * index}
	switch o.field {
	case "creationTime":
		at.time = row.CreationTime.Unix()
	case "startTime":
		// What has not started will do so last.
		at.time = math.MaxInt64
		if row.StartTime != nil {
			at.time = row.StartTime.Unix()
		}
	case "status":
		at.text = row.Status
	case "name":
		at.text = row.Name
	}
	return at
}

func (o order) compare(left, right *place) int {
	result := cmp.Compare(left.time, right.time)
	if result == 0 {
		result = strings.Compare(left.text, right.text)
	}
	if result == 0 {
		result = cmp.Compare(left.index, right.index)
	}
	if o.backwards {
		return -result
	}
	return result
}

// placeOf is where a cursor stands among jobs that are by namespace and name.
func (o order) placeOf(cursor *cursor, entries []*entry) *place {
	key := types.NamespacedName{Namespace: cursor.Namespace, Name: cursor.Name}
	index, found := slices.BinarySearchFunc(entries, key, func(entry *entry, key types.NamespacedName) int { return compareNames(entry.Row, key) })
	at := &place{time: cursor.Time, text: cursor.Text, index: 2 * index}
	if !found {
		at.index--
	}
	return at
}

// placed is an entry that may be on a page.
type placed struct {
	place
	entry *entry
}

// first is the first entries in this order after a place, of some that are by
// namespace and name, and how many there are after it in all. Most are on other
// pages: what comes after enough others is not sorted any further.
func (o order) first(entries []*entry, after *place, count int) (found []placed, left int) {
	compare := func(left, right placed) int { return o.compare(&left.place, &right.place) }
	kept := make([]placed, 0, 2*count)
	full := false
	for index, entry := range entries {
		one := placed{o.place(entry.Row, index), entry}
		if after != nil && o.compare(&one.place, after) <= 0 {
			continue
		}
		left++
		if full && o.compare(&one.place, &kept[count-1].place) > 0 {
			continue
		}
		if kept = append(kept, one); len(kept) == 2*count {
			slices.SortFunc(kept, compare)
			kept, full = kept[:count], true
		}
	}
	slices.SortFunc(kept, compare)
	return kept[:min(count, len(kept))], left
}
