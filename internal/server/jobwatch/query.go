// SPDX-License-Identifier: Apache-2.0

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

// Default and maximum number of jobs on a page.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
	// MaxBytes is the approximate maximum size of a page: a thousand usual jobs, or a few
	// of the largest possible.
	MaxBytes = 6 << 20
)

// Sorts are the sort orders of a list; a leading "-" reverses them.
var Sorts = []string{"name", "creationTime", "startTime", "status", "namespace"}

// preparedQuery is a validated query.
type preparedQuery struct {
	Query
	order order
	// after is the end of the previous page; nil on the first page.
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

// filter returns the entries that match the query, in the same order.
func (p *preparedQuery) filter(entries []*entry) []*entry {
	// Entries of one namespace are adjacent, so each namespace is checked once.
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

// wants matches status and framework case-insensitively.
func (p *preparedQuery) wants(row *jobview.Row) bool {
	return (p.Status == "" || strings.EqualFold(p.Status, row.Status) || strings.EqualFold(p.Status, row.Phase)) &&
		(p.Runtime == "" || p.Runtime == row.Runtime || strings.EqualFold(p.Runtime, row.Framework)) &&
		(p.Name == "" || strings.Contains(row.Name, p.Name)) && (p.ExactName == "" || p.ExactName == row.Name)
}

// page returns one page of the entries, which must be sorted by namespace and name.
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

// fitting returns the first entries that fit on the page, and their size.
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

// rowSize is the approximate size of a row as JSON.
func rowSize(row *jobview.Row) int { return 1024 + len(row.Message) + 48*len(row.WorkerStatuses) }

// smallAnswer needs no budget: many such requests at once are served from memory anyway.
const smallAnswer = 64 << 10

func takeBytes(ctx context.Context, size int) error {
	if size <= smallAnswer {
		return nil
	}
	return budget.Take(ctx, size)
}

// entry returns a job in the form of the query. It is nil if the job has been deleted.
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
