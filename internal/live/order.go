package live

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/trireme-mpi/trireme/internal/jobview"
	"github.com/trireme-mpi/trireme/internal/problem"
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
		return order{}, problem.Invalid("sort", "%q is none; there are %s, and each with a - before it", sort, strings.Join(Sorts, ", "))
	}
	return order{field: field, backwards: backwards}, nil
}

func (order order) String() string {
	if order.backwards {
		return "-" + order.field
	}
	return order.field
}

// cursor is where a row stands in the order.
func (order order) cursor(row *jobview.Row) cursor {
	at := cursor{Sort: order.String(), Namespace: row.Namespace, Name: row.Name}
	switch order.field {
	case "creationTime":
		at.Time = row.CreationTime.Unix()
	case "startTime":
		// What has not started will do so last.
		at.Time = math.MaxInt64
		if row.StartTime != nil {
			at.Time = row.StartTime.Unix()
		}
	case "status":
		at.Status = row.Status
	}
	return at
}

func (order order) compare(left, right cursor) int {
	result := 0
	switch order.field {
	case "creationTime", "startTime":
		result = cmp.Compare(left.Time, right.Time)
	case "status":
		result = strings.Compare(left.Status, right.Status)
	case "name":
		result = strings.Compare(left.Name, right.Name)
	}
	if result == 0 {
		result = cmp.Or(strings.Compare(left.Namespace, right.Namespace), strings.Compare(left.Name, right.Name))
	}
	if order.backwards {
		return -result
	}
	return result
}

// first is the first entries in this order, of some that are by namespace and name.
func (order order) first(entries []*entry, count int) []*entry {
	switch order.field {
	case "", "namespace":
		if order.backwards {
			slices.Reverse(entries)
		}
	default:
		// Where each stands is found out once, and not for each comparison.
		type placed struct {
			at    cursor
			entry *entry
		}
		sorting := make([]placed, len(entries))
		for i, entry := range entries {
			sorting[i] = placed{order.cursor(entry.Row), entry}
		}
		slices.SortFunc(sorting, func(left, right placed) int { return order.compare(left.at, right.at) })
		for i := range sorting {
			entries[i] = sorting[i].entry
		}
	}
	return entries[:min(count, len(entries))]
}
