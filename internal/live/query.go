package live

import (
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/trireme-mpi/trireme/internal/jobview"
	"github.com/trireme-mpi/trireme/internal/problem"
)

// How many jobs a page has, if the query does not say, and at most.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Sorts are the orders of a list; each with a "-" before it is the other way round.
var Sorts = []string{"name", "creationTime", "startTime", "status", "namespace"}

// prepared is a query that makes sense.
type prepared struct {
	Query
	order order
	// after is where the page before ended; nil on the first one.
	after *cursor
}

func prepare(query Query) (*prepared, error) {
	switch {
	case query.Limit < 0 || query.Limit > MaxLimit:
		return nil, problem.Invalid("limit", "must be from 1 to %d", MaxLimit)
	case query.Limit == 0:
		query.Limit = DefaultLimit
	}
	if query.Labels == nil {
		query.Labels = labels.Everything()
	}
	made := &prepared{Query: query}
	var err error
	if made.order, err = orderOf(query.Sort); err != nil {
		return nil, err
	}
	if query.Continue != "" {
		made.after, err = parseCursor(query.Continue, made.order)
	}
	return made, err
}

// filter is the entries that the query wants, in the order that they have.
func (query *prepared) filter(entries []*entry) []*entry {
	// Entries of one namespace follow each other, so each is asked for once.
	namespace, allowed := "", query.Allowed == nil
	all := query.Labels.Empty()
	matching := make([]*entry, 0, len(entries))
	for _, entry := range entries {
		if query.Allowed != nil && entry.Row.Namespace != namespace {
			namespace = entry.Row.Namespace
			allowed = query.Allowed(namespace)
		}
		if allowed && query.wants(entry.Row) && (all || query.Labels.Matches(labels.Set(entry.Object.GetLabels()))) {
			matching = append(matching, entry)
		}
	}
	return matching
}

// wants: status and framework are written in capitals or not, as users do.
func (query *prepared) wants(row *jobview.Row) bool {
	return (query.Status == "" || strings.EqualFold(query.Status, row.Status) || strings.EqualFold(query.Status, row.Phase)) &&
		(query.Runtime == "" || query.Runtime == row.Runtime || strings.EqualFold(query.Runtime, row.Framework)) &&
		(query.Name == "" || strings.Contains(row.Name, query.Name)) && (query.ExactName == "" || query.ExactName == row.Name)
}

// page is the part of the entries that is asked for. They come by namespace and name.
func (query *prepared) page(matching []*entry, resourceVersion string) *Page {
	page := &Page{Total: len(matching), ResourceVersion: resourceVersion, Entries: []Entry{}}
	var after *place
	if query.after != nil {
		after = query.order.placeOf(query.after, matching)
	}
	found, left := query.order.first(matching, after, query.Limit)
	if page.Remaining = left - len(found); page.Remaining > 0 {
		page.Continue = newCursor(query.order, &found[len(found)-1]).String()
	}
	for i := range found {
		page.Entries = append(page.Entries, found[i].entry.Entry)
	}
	return page
}
