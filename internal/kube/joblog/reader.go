// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// grace is how long a stream may take to end by itself when the pod is deleted.
	grace = 2 * time.Second
	// minWait and maxWait bound the wait before a retry.
	minWait = 100 * time.Millisecond
	maxWait = 3 * time.Second
)

// reader follows one container: it waits until there is a log, continues when the
// container is restarted, and reopens broken streams.
type reader struct {
	feed   *feed
	notify func(string)
	// settle is closed when no more lines will come: the reader reads the existing lines
	// and finishes.
	settle <-chan struct{}

	lock sync.Mutex
	pod  *corev1.Pod
	// changed wakes the reader when the pod has changed.
	changed chan struct{}
	// deleted is closed when the pod is deleted.
	deleted chan struct{}

	// run is the run that is read, complete the last one that was read to its end.
	run, complete string
	wait          time.Duration
}

func newReader(feed *feed, pod *corev1.Pod, notify func(string), settle <-chan struct{}) *reader {
	return &reader{
		feed: feed, pod: pod, notify: notify, settle: settle, changed: make(chan struct{}, 1), deleted: make(chan struct{}),
		run: stateOf(pod, feed.origin.container).run,
	}
}

// update sets the pod; nil if it was deleted.
func (r *reader) update(pod *corev1.Pod) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.pod == nil {
		return
	}
	if r.pod = pod; pod == nil {
		close(r.deleted)
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// state returns the state of the container; false if its pod was deleted.
func (r *reader) state() (state, bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.pod == nil {
		return state{}, false
	}
	return stateOf(r.pod, r.feed.origin.container), true
}

// follow reads until no more lines will come.
func (r *reader) follow(ctx context.Context, pass func(Line) bool) error {
	for {
		done, err := r.step(ctx, pass)
		switch {
		case err == nil && done:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errStopped), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return err
		case apierrors.IsNotFound(err), errors.Is(err, errCleared):
			return nil
		case err == nil:
			continue
		}
		r.wait = min(max(2*r.wait, minWait), maxWait)
		if !r.pause(ctx, r.wait) || !r.refresh(ctx) {
			return nil
		}
	}
}

// refresh reads the pod before its log is opened again: a replaced worker has the same
// name, and another reader reads its log. It returns false if the pod was deleted.
func (r *reader) refresh(ctx context.Context) bool {
	pod, err := r.feed.source.Get(ctx, r.feed.origin.pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != r.feed.origin.uid {
		return false
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if err == nil && r.pod != nil {
		r.pod = pod
	}
	return true
}

// step does what the container's state requires. done is true at the end of the log.
func (r *reader) step(ctx context.Context, pass func(Line) bool) (done bool, err error) {
	state, exists := r.state()
	if !exists {
		return true, nil
	}
	if err := r.catchRuns(ctx, state, pass); err != nil {
		return false, err
	}
	switch {
	case !state.started && state.finished:
		r.notify(noLogReason(&r.feed.origin, state))
		return true, nil
	case !state.started, r.complete == state.run && !state.finished:
		return !r.pause(ctx, time.Minute), nil
	case r.complete == state.run:
		return true, nil
	case state.running && !r.settled():
		return false, r.stream(ctx, pass)
	}
	before := r.feed.position
	if err := r.feed.read(ctx, reading{last: true}, pass); err != nil {
		return false, r.resetWait(before, err)
	}
	r.complete = state.run
	return state.finished || r.settled(), nil
}

// catchRuns reads the rest of a run after the container was restarted.
func (r *reader) catchRuns(ctx context.Context, state state, pass func(Line) bool) error {
	if state.run == r.run {
		return nil
	}
	if missed := r.run != "" && state.before != "" && state.before != r.complete; missed {
		if state.before != r.run {
			r.notify(fmt.Sprintf("%s was restarted more than once; some of its lines may be lost", &r.feed.origin))
		}
		err := r.feed.read(ctx, reading{last: true, previous: true}, pass)
		if err != nil && !apierrors.IsBadRequest(err) && !apierrors.IsNotFound(err) && !errors.Is(err, errCleared) {
			return err
		}
	}
	r.run = state.run
	r.feed.position.pieces = 0
	return nil
}

// stream follows one stream until it ends. The pod tells later whether it is complete: a
// broken stream looks the same as a complete one.
func (r *reader) stream(ctx context.Context, pass func(Line) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go r.cutOff(ctx, cancel)
	before := r.feed.position
	err := r.feed.read(ctx, reading{follow: true}, pass)
	if r.settled() && !errors.Is(err, errStopped) {
		return nil
	}
	if err == nil {
		err = errEnded
	}
	return r.resetWait(before, err)
}

// errEnded: a stream has ended although the container was running.
var errEnded = errors.New("the stream has ended")

// cutOff cancels a stream that does not end by itself although no more lines come.
func (r *reader) cutOff(ctx context.Context, cancel func()) {
	select {
	case <-r.settle:
		cancel()
	case <-r.deleted:
		if pause(ctx, grace) {
			cancel()
		}
	case <-ctx.Done():
	}
}

// resetWait resets the wait after failures if something was read since.
func (r *reader) resetWait(before position, err error) error {
	if r.feed.position != before {
		r.wait = 0
	}
	return err
}

func (r *reader) settled() bool {
	select {
	case <-r.settle:
		return true
	default:
		return false
	}
}

// pause waits for a change of the pod. It returns false if there will be none.
func (r *reader) pause(ctx context.Context, timeout time.Duration) bool {
	settle := r.settle
	if r.settled() {
		state, exists := r.state()
		if !exists || !state.started || r.complete == state.run {
			return false
		}
		// Existing lines must still be read.
		settle = nil
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-r.changed:
	case <-timer.C:
	case <-settle:
	case <-ctx.Done():
		return false
	}
	return true
}
