// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// Cache has the jobs of both kinds in memory, read with the server's own permissions:
// check the caller's permissions before you use it.
type Cache struct {
	kinds map[*jobview.Kind]*cached
}

var _ Source = (*Cache)(nil)

// cached has the jobs of one kind.
type cached struct {
	*store
	history *historyLoader
	syncer  *syncer
}

// Options of a cache.
type Options struct {
	// History is the number of changes of each kind to keep for clients that resume or are
	// slow; 0 means DefaultHistory.
	History int
	// Registry for metrics; nil registers none.
	Registry prometheus.Registerer
	// Log gets errors of the API server; nil uses slog.Default.
	Log *slog.Logger
}

// DefaultHistory is the default number of changes to keep. It is more than the API server
// keeps.
const DefaultHistory = 8192

// NewCache returns a cache that is empty until Run. The client has the server's
// permissions; it must be able to get, list and watch jobs in all namespaces.
func NewCache(cluster client.WithWatch, options Options) *Cache {
	if options.History == 0 {
		options.History = DefaultHistory
	}
	if options.Log == nil {
		options.Log = slog.Default()
	}
	metrics := newMetrics(options.Registry)
	c := &Cache{kinds: map[*jobview.Kind]*cached{}}
	for _, kind := range jobview.Kinds {
		remote := remote{client: cluster, kind: kind}
		store := newStore(kind, options.History, metrics.of(kind))
		c.kinds[kind] = &cached{store: store, history: newHistoryLoader(store, remote), syncer: newSyncer(store, remote, options.Log)}
	}
	return c
}

// Run keeps the cache up to date until the context ends.
func (c *Cache) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, cached := range c.kinds {
		running.Go(func() { cached.syncer.run(ctx) })
	}
	running.Wait()
}

// HasSynced returns true once all jobs have been read.
func (c *Cache) HasSynced() bool {
	for _, cached := range c.kinds {
		if !cached.hasSynced() {
			return false
		}
	}
	return true
}

// WaitForSync waits until all jobs have been read, or the context ends.
func (c *Cache) WaitForSync(ctx context.Context) error {
	for _, cached := range c.kinds {
		for {
			synced, changed := cached.state()
			if synced {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// BrokenFor returns how long there has been no watch of the API server; 0 while a watch is
// running. The cached jobs are at least that old.
func (c *Cache) BrokenFor() time.Duration {
	longest := time.Duration(0)
	now := time.Now()
	for _, cached := range c.kinds {
		longest = max(longest, cached.syncer.brokenFor(now))
	}
	return longest
}

func (s *store) hasSynced() bool {
	synced, _ := s.state()
	return synced
}

// state returns whether all jobs have been read, and a channel that is closed at the next
// change.
func (s *store) state() (bool, <-chan struct{}) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return s.synced, s.changed
}

// ready returns the jobs of a kind, or an error before the first sync.
func (c *Cache) ready(kind *jobview.Kind) (*cached, error) {
	cached := c.kinds[kind]
	if !cached.hasSynced() {
		return nil, apierror.New(http.StatusServiceUnavailable, "ServiceUnavailable", "The server is starting and has not loaded the jobs yet", "Retry in a few seconds")
	}
	return cached, nil
}

// Get returns a job.
func (c *Cache) Get(ctx context.Context, kind *jobview.Kind, namespace, name string) (client.Object, error) {
	cached, err := c.ready(kind)
	if err != nil {
		return nil, err
	}
	e := cached.entry(types.NamespacedName{Namespace: namespace, Name: name})
	if e == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: kind.GVK.Group, Resource: kind.Plural}, name)
	}
	if err := takeBytes(ctx, e.size); err != nil {
		return nil, err
	}
	whole, err := cached.remote().whole(ctx, e.Object)
	if err != nil && !apierrors.IsNotFound(err) {
		err = hideServerError(err)
	}
	return whole, err
}

// entry returns nil if the job does not exist.
func (s *store) entry(key types.NamespacedName) *entry {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return s.entries[key]
}

func (c *cached) remote() remote { return c.syncer.remote }

// List returns a page of jobs.
func (c *Cache) List(ctx context.Context, kind *jobview.Kind, query Query) (*Page, error) {
	prepared, err := prepare(query)
	if err != nil {
		return nil, err
	}
	cached, err := c.ready(kind)
	if err != nil {
		return nil, err
	}
	matching, version := cached.matching(prepared)
	page, err := prepared.page(ctx, matching, at(version).String(), cached.remote())
	if err != nil {
		return nil, hideServerError(err)
	}
	return page, nil
}

// matching returns the entries that match a query, sorted by namespace and name.
func (s *store) matching(query *preparedQuery) ([]*entry, uint64) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return query.filter(s.inNamespace(query.Namespace)), s.newest
}

// Watch streams the changes of jobs. A client is only a position in the store's history,
// so a slow client costs nothing; when its position is no longer in the history, it must
// start over.
func (c *Cache) Watch(ctx context.Context, kind *jobview.Kind, watch Watch) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		cached, err := c.ready(kind)
		if err != nil {
			yield(nil, err)
			return
		}
		cached.metrics.watchers.Inc()
		defer cached.metrics.watchers.Dec()
		err = cached.send(ctx, watch, func(event *Event) bool { return yield(event, nil) })
		if err != nil && !errors.Is(err, errStopped) && ctx.Err() == nil {
			yield(nil, err)
		}
	}
}
