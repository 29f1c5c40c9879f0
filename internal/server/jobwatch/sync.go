// SPDX-License-Identifier: Apache-2.0

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

// syncer keeps a store up to date.
//
// client-go's reflector lists again after many errors that the next watch would recover
// from, and the changes in between are lost. The syncer only lists again if the API server
// says that it has lost its history.
type syncer struct {
	store  *store
	remote remote
	log    *slog.Logger

	lock sync.Mutex
	// brokenSince is when the watch ended; zero while a watch is running.
	brokenSince time.Time
}

func newSyncer(store *store, remote remote, log *slog.Logger) *syncer {
	return &syncer{store: store, remote: remote, log: log.With("kind", remote.kind.Kind), brokenSince: time.Now()}
}

// The first retry after an error is fast, because clients wait; then the pause doubles. A
// watch that ran for minWatch resets the pause.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
	minWatch   = time.Second
)

// run returns when the context ends.
func (s *syncer) run(ctx context.Context) {
	pause := firstPause
	for {
		began := time.Now()
		err := s.sync(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= minWatch {
			pause = firstPause
		}
		if err != nil {
			s.log.ErrorContext(ctx, "cannot list or watch jobs; retrying", "error", err)
		}
		if sleep(ctx, pause/2+rand.N(pause)) != nil {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// sync watches from the store's version, or lists first.
func (s *syncer) sync(ctx context.Context) error {
	version, synced := s.store.reached()
	if !synced {
		if err := s.list(ctx); err != nil {
			return err
		}
		version, _ = s.store.reached()
	}
	// If the cluster was restored to an earlier state, the version may never come.
	err := s.remote.confirm(ctx, scope{}, version)
	if err == nil {
		err = s.follow(ctx, version)
	}
	if isExpired(err) || isInvalid(err) {
		return s.list(ctx)
	}
	return err
}

// list reads all jobs.
func (s *syncer) list(ctx context.Context) error {
	entries, version, err := s.remote.entries(ctx, scope{}, partial.PageSize)
	if err != nil {
		return err
	}
	return s.store.replace(entries, version)
}

// follow handles changes until the API server ends the watch.
func (s *syncer) follow(ctx context.Context, version uint64) error {
	// The watches of all replicas must not end at the same time.
	seconds := int64(300 + rand.IntN(300))
	defer func() { s.setBroken(time.Now()) }()
	return s.remote.follow(ctx, scope{}, version, watchOptions{
		seconds: &seconds,
		started: func() { s.setBroken(time.Time{}) },
		handle: func(what watch.EventType, object client.Object, version uint64) error {
			switch {
			case object == nil:
				s.store.bookmark(version)
				return nil
			case what == watch.Deleted:
				return s.store.remove(object)
			default:
				return s.store.put(object)
			}
		},
	})
}

func (s *syncer) setBroken(since time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.brokenSince = since
}

// brokenFor returns how long there has been no watch.
func (s *syncer) brokenFor(now time.Time) time.Duration {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.brokenSince.IsZero() {
		return 0
	}
	return now.Sub(s.brokenSince)
}
