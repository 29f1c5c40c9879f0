package live

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// feed is the list and the watch of a reflector. It knows since when there is none
// that works.
type feed struct {
	remote remote

	lock sync.Mutex
	// broken is since when; zero while a watch runs.
	broken time.Time
}

func newFeed(remote remote) *feed { return &feed{remote: remote, broken: time.Now()} }

// ListWithContext is what reflectors begin with.
func (feed *feed) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return feed.remote.list(ctx, scope{}, options)
}

// WatchWithContext is what they go on with.
func (feed *feed) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	watching, err := feed.remote.watch(ctx, scope{}, options)
	if err != nil {
		return nil, err
	}
	feed.set(time.Time{})
	return &watched{Interface: watching, ended: func() { feed.set(time.Now()) }}, nil
}

// List and Watch are the same for a reflector of earlier days.
func (feed *feed) List(options metav1.ListOptions) (runtime.Object, error) {
	return feed.ListWithContext(context.Background(), options)
}

// Watch is WatchWithContext without one.
func (feed *feed) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return feed.WatchWithContext(context.Background(), options)
}

func (feed *feed) set(broken time.Time) {
	feed.lock.Lock()
	defer feed.lock.Unlock()
	feed.broken = broken
}

// brokenFor is how long there has been no watch.
func (feed *feed) brokenFor(now time.Time) time.Duration {
	feed.lock.Lock()
	defer feed.lock.Unlock()
	if feed.broken.IsZero() {
		return 0
	}
	return now.Sub(feed.broken)
}

// watched tells when nobody listens to a watch any more: a reflector stops each one,
// also those that have ended by themselves.
type watched struct {
	watch.Interface
	once  sync.Once
	ended func()
}

// Stop ends the watch.
func (watched *watched) Stop() {
	watched.once.Do(watched.ended)
	watched.Interface.Stop()
}
