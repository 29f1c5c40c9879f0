package jobwatch

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// keeper keeps a store up to date.
//
// client-go's reflector does the like, but lists anew after many an error that the
// next watch would have got over; and what happened in between is lost to those who
// want to know every change. Here that is only done when the API server says that it
// does not know itself.
type syncer struct {
	store  *store
	remote remote
	log    *slog.Logger

	lock sync.Mutex
	// broken is since when there is no watch; zero while one runs.
	brokenSince time.Time
}

func newSyncer(store *store, remote remote, log *slog.Logger) *syncer {
	return &syncer{store: store, remote: remote, log: log.With("kind", remote.kind.Kind), brokenSince: time.Now()}
}

// The API server is asked again soon after a break, because those who watch wait; and
// more seldom when that does not help. A watch that ran for a while was none of those
// that fail.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
	minWatch   = time.Second
)

// run returns when the context ends.
func (k *syncer) run(ctx context.Context) {
	pause := firstPause
	for {
		began := time.Now()
		err := k.sync(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= minWatch {
			pause = firstPause
		}
		if err != nil {
			k.log.ErrorContext(ctx, "cannot list or watch jobs; retrying", "error", err)
		}
		if sleep(ctx, pause/2+rand.N(pause)) != nil {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// goOn follows the cluster from where the store is, or from a new list on.
func (k *syncer) sync(ctx context.Context) error {
	version, synced := k.store.reached()
	if !synced {
		if err := k.list(ctx); err != nil {
			return err
		}
		version, _ = k.store.reached()
	}
	// A cluster that was set back would leave us waiting for a version that comes in
	// days, or never.
	err := k.remote.confirm(ctx, scope{}, version)
	if err == nil {
		err = k.follow(ctx, version)
	}
	if isExpired(err) || isInvalid(err) {
		return k.list(ctx)
	}
	return err
}

// list reads all jobs.
func (k *syncer) list(ctx context.Context) error {
	entries, version, err := k.remote.entries(ctx, scope{}, partial.PageSize)
	if err != nil {
		return err
	}
	return k.store.replace(entries, version)
}

// follow reads changes as long as the API server likes.
func (k *syncer) follow(ctx context.Context, version uint64) error {
	// Not all watches of all replicas end at once.
	seconds := int64(300 + rand.IntN(300))
	defer func() { k.setBroken(time.Now()) }()
	return k.remote.follow(ctx, scope{}, version, watchOptions{
		seconds: &seconds,
		started: func() { k.setBroken(time.Time{}) },
		handle: func(what watch.EventType, object client.Object, version uint64) error {
			switch {
			case object == nil:
				k.store.bookmark(version)
				return nil
			case what == watch.Deleted:
				return k.store.remove(object)
			default:
				return k.store.put(object)
			}
		},
	})
}

func (k *syncer) setBroken(since time.Time) {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.brokenSince = since
}

// brokenFor is how long there has been no watch.
func (k *syncer) brokenFor(now time.Time) time.Duration {
	k.lock.Lock()
	defer k.lock.Unlock()
	if k.brokenSince.IsZero() {
		return 0
	}
	return now.Sub(k.brokenSince)
}
