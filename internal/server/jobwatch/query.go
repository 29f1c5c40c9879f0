package jobwatch

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/budget"
)

// How many jobs a page has, if the query does not say, and at most.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
	// MaxBytes is about how large a page may become: a thousand jobs as most are, or
	// some of the largest that there can be.
	MaxBytes = 6 << 20
)

// Sorts are the orders of a list; each with a "-" before it is the other way round.
var Sorts = []string{"name", "creationTime", "startTime", "status", "namespace"}

// prepared is a query that makes sense.
type preparedQuery struct {
	Query
	order order
	// after is where the page before ended; nil on the first one.
	after *cursor
}

func prepare(query Query) (*preparedQuery, error) {
	switch {
	case query.Limit < 0 || query.Limit > MaxLimit:
		return nil, apierror.Invalid("limit", "must be from 1 to %d", MaxLimit)
	case query.Limit == 0:
		query.Limit = DefaultLimit
	}
	if query.Bytes == 0 || query.Bytes > MaxBytes {
		query.Bytes = MaxBytes
	}
	if query.Labels == nil {
		query.Labels = labels.Everything()
	}
	p := &preparedQuery{Query: query}
	var err error
	if p.order, err = orderOf(query.Sort); err != nil {
		return nil, err
	}
	if query.Continue != "" {
		p.after, err = parseCursor(query.Continue, p.order)
	}
	return p, err
}

// filter is the entries that the query wants, in the order that they have.
func (p *preparedQuery) filter(entries []*entry) []*entry {
	// Entries of one namespace follow each other, so each is asked for once.
	namespace, allowed := "", p.Allowed == nil
	all := p.Labels.Empty()
	matching := make([]*entry, 0, len(entries))
	for _, entry := range entries {
		if p.Allowed != nil && entry.Row.Namespace != namespace {
			namespace = entry.Row.Namespace
			allowed = p.Allowed(namespace)
		}
		if allowed && p.wants(entry.Row) && (all || p.Labels.Matches(labels.Set(entry.Object.GetLabels()))) {
			matching = append(matching, entry)
		}
	}
	return matching
}

// wants: status and framework are written in capitals or not, as users do.
func (p *preparedQuery) wants(row *jobview.Row) bool {
	return (p.Status == "" || strings.EqualFold(p.Status, row.Status) || strings.EqualFold(p.Status, row.Phase)) &&
		(p.Runtime == "" || p.Runtime == row.Runtime || strings.EqualFold(p.Runtime, row.Framework)) &&
		(p.Name == "" || strings.Contains(row.Name, p.Name)) && (p.ExactName == "" || p.ExactName == row.Name)
}

// page is the part of the entries that is asked for. They come by namespace and name.
func (p *preparedQuery) page(ctx context.Context, matching []*entry, resourceVersion string, remote remote) (*Page, error) {
	page := &Page{Total: len(matching), ResourceVersion: resourceVersion, Entries: []Entry{}}
	var after *sortKey
	if p.after != nil {
		after = p.order.keyOfCursor(p.after, matching)
	}
	selected, remaining := p.order.first(matching, after, p.Limit)
	selected, size := p.fitting(selected)
	if page.Remaining = remaining - len(selected); page.Remaining > 0 {
		page.Continue = newCursor(p.order, &selected[len(selected)-1]).String()
	}
	if err := takeBytes(ctx, size); err != nil {
		return nil, err
	}
	for i := range selected {
		e, err := p.entry(ctx, selected[i].entry, remote)
		if err != nil {
			return nil, err
		}
		if e != nil {
			page.Entries = append(page.Entries, *e)
		}
	}
	return page, nil
}

// thatFit is the first entries that together are not too large, and their size.
func (p *preparedQuery) fitting(selected []sortedEntry) ([]sortedEntry, int) {
	sum := 0
	for i := range selected {
		size := rowSize(selected[i].entry.Row)
		if p.Whole {
			size = selected[i].entry.size
		}
		if sum+size > p.Bytes && i > 0 {
			return selected[:i], sum
		}
		sum += size
	}
	return selected, sum
}

// rowSize is about how many bytes a row has as JSON.
func rowSize(row *jobview.Row) int { return 1024 + len(row.Message) + 48*len(row.WorkerStatuses) }

// smallAnswer is so little that it is not worth a budget: many calls at once are
// answered from what is in memory anyway.
const smallAnswer = 64 << 10

func takeBytes(ctx context.Context, size int) error {
	if size <= smallAnswer {
		return nil
	}
	return budget.Take(ctx, size)
}

// entry is a job as the query wants it. It is nil if the job does not exist any more.
func (p *preparedQuery) entry(ctx context.Context, stored *entry, remote remote) (*Entry, error) {
	if !p.Whole {
		return &Entry{Row: stored.Row}, nil
	}
	whole, err := remote.whole(ctx, stored.Object)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &Entry{Row: stored.Row, Object: whole}, err
}
