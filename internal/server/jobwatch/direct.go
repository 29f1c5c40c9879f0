package jobwatch

import (
	"context"
	"iter"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// Direct is the jobs as the API server tells them, each time anew, with the rights of
// whose client it is: for one user on a laptop.
type Direct struct {
	client client.WithWatch
}

var _ Source = (*Direct)(nil)

// NewDirect reads with a client.
func NewDirect(cluster client.WithWatch) *Direct { return &Direct{client: cluster} }

func (d *Direct) remote(kind *jobview.Kind) remote {
	return remote{client: d.client, kind: kind}
}

// Get is one job.
func (d *Direct) Get(ctx context.Context, kind *jobview.Kind, namespace, name string) (client.Object, error) {
	view, err := kind.Get(ctx, d.client, namespace, name)
	if err != nil {
		return nil, clientError(err)
	}
	view.SetManagedFields(nil)
	return view.Object, nil
}

// List is a page of jobs. All of them are read for each page: the API server cannot
// sort.
func (d *Direct) List(ctx context.Context, kind *jobview.Kind, query Query) (*Page, error) {
	prepared, err := prepare(query)
	if err != nil {
		return nil, err
	}
	entries, version, err := d.remote(kind).entries(ctx, scope{namespace: query.Namespace, labels: prepared.Labels}, directPage)
	if err != nil {
		return nil, clientError(err)
	}
	page, err := prepared.page(ctx, prepared.filter(entries), version, d.remote(kind))
	if err != nil {
		return nil, clientError(err)
	}
	return page, nil
}

// entries is the jobs of a scope by namespace and name, and their common version.
func (r remote) entries(ctx context.Context, scope scope, pageSize int64) ([]*entry, string, error) {
	var entries []*entry
	now := time.Now()
	version, err := r.each(ctx, scope, pageSize, func(object client.Object) error {
		read, err := newEntry(r.kind, object, now)
		entries = append(entries, read)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(entries, byName)
	return entries, version, nil
}

// Watch tells what the API server's watch tells. It goes on where a connection broke.
func (d *Direct) Watch(ctx context.Context, kind *jobview.Kind, watch Watch) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		follower := &follower{
			remote: d.remote(kind), watch: watch, scope: scope{namespace: watch.Namespace, name: watch.Name},
			jobs: map[types.NamespacedName]*entry{}, yield: func(event *Event) bool { return yield(event, nil) },
		}
		err := follower.start(ctx)
		if err == nil {
			err = follower.followChanges(ctx)
		}
		if err != errStopped && ctx.Err() == nil {
			yield(nil, clientError(err))
		}
	}
}

// follower is one reader of the API server's watch.
type follower struct {
	remote remote
	watch  Watch
	scope  scope
	yield  func(*Event) bool

	// jobs as the reader knows them.
	jobs map[types.NamespacedName]*entry
	// version up to which everything was told.
	version uint64
}

// begin tells all that there is, or finds out whether the reader's version is one.
func (f *follower) start(ctx context.Context) error {
	if f.watch.Since == "" {
		return f.sendAll(ctx)
	}
	last, err := parsePosition(f.watch.Since)
	if err != nil {
		return err
	}
	if last.count > 0 {
		return tooOld()
	}
	f.version = last.version
	return f.remote.confirm(ctx, f.scope, last.version)
}

func (f *follower) sendAll(ctx context.Context) error {
	entries, version, err := f.remote.entries(ctx, f.scope, directPage)
	if err != nil {
		return err
	}
	if f.version, err = parseVersion(version); err != nil {
		return err
	}
	for _, entry := range entries {
		f.jobs[entry.key()] = entry
		if !f.yield(entry.asAdded()) {
			return errStopped
		}
	}
	if !f.yield(syncedEvent(f.remote.kind, f.watch, version, time.Now())) {
		return errStopped
	}
	return nil
}

// How often a watch is begun again that does not get on, and how long is waited
// before.
const (
	attempts     = 8
	firstAttempt = 100 * time.Millisecond
)

// goOn tells the changes. The API server ends every watch after a while, and may be
// away for a moment.
func (f *follower) followChanges(ctx context.Context) error {
	for failed := 0; ; failed++ {
		before := f.version
		err := f.remote.follow(ctx, f.scope, f.version, watchOptions{handle: f.handle})
		if f.version != before || err == nil {
			failed = 0
		}
		if err != nil && (failed >= attempts || !canRetry(err)) {
			return err
		}
		if err := sleep(ctx, firstAttempt<<failed); err != nil {
			return err
		}
	}
}

// canRetry: neither the reader nor the API server has said its last word.
func canRetry(err error) bool {
	return err != errStopped && !isExpired(err) && !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err)
}

func sleep(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *follower) handle(what watch.EventType, object client.Object, version uint64) error {
	if object == nil {
		f.version = version
		return nil
	}
	after, err := newEntry(f.remote.kind, object, time.Now())
	if err != nil {
		return err
	}
	event := newEvent(EventType(what), f.jobs[after.key()], after, at(version).String())
	f.version = version
	if what == watch.Deleted {
		delete(f.jobs, after.key())
	} else {
		f.jobs[after.key()] = after
	}
	if !f.yield(event) {
		return errStopped
	}
	return nil
}
