// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// Direct reads jobs from the API server each time, with the permissions of its client: for
// one user on a laptop.
type Direct struct {
	client client.WithWatch
}

var _ Source = (*Direct)(nil)

// NewDirect returns a source that uses a client.
func NewDirect(cluster client.WithWatch) *Direct { return &Direct{client: cluster} }

func (d *Direct) remote(kind *jobview.Kind) remote {
	return remote{client: d.client, kind: kind}
}

// Get returns a job.
func (d *Direct) Get(ctx context.Context, kind *jobview.Kind, namespace, name string) (client.Object, error) {
	view, err := kind.Get(ctx, d.client, namespace, name)
	if err != nil {
		return nil, clientError(err)
	}
	view.SetManagedFields(nil)
	return view.Object, nil
}

// List returns a page of jobs. All jobs are read for each page: the API server cannot
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

// entries returns the jobs of a scope, sorted by namespace and name, and their resource
// version.
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

// Watch passes on the watch of the API server. It resumes after a lost connection.
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
		if !errors.Is(err, errStopped) && ctx.Err() == nil {
			yield(nil, clientError(err))
		}
	}
}

// follower is one client of the API server's watch.
type follower struct {
	remote remote
	watch  Watch
	scope  scope
	yield  func(*Event) bool

	// jobs that were sent to the client.
	jobs map[types.NamespacedName]*entry
	// version up to which all changes were sent.
	version uint64
}

// start sends all existing jobs, or checks the client's resource version.
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

// Retries of a watch that makes no progress, and the delay before the first.
const (
	attempts     = 8
	firstAttempt = 100 * time.Millisecond
)

// followChanges sends the changes. The API server ends every watch after some time, and
// may be unavailable for a moment.
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

// canRetry tells whether a watch can be retried after an error.
func canRetry(err error) bool {
	return !errors.Is(err, errStopped) && !isExpired(err) && !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err)
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
