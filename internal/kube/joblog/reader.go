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
func (reader *reader) update(pod *corev1.Pod) {
	reader.lock.Lock()
	defer reader.lock.Unlock()
	if reader.pod == nil {
		return
	}
	if reader.pod = pod; pod == nil {
		close(reader.deleted)
	}
	select {
	case reader.changed <- struct{}{}:
	default:
	}
}

// state returns the state of the container; false if its pod was deleted.
func (reader *reader) state() (state, bool) {
	reader.lock.Lock()
	defer reader.lock.Unlock()
	if reader.pod == nil {
		return state{}, false
	}
	return stateOf(reader.pod, reader.feed.origin.container), true
}

// follow reads until no more lines will come.
func (reader *reader) follow(ctx context.Context, pass func(Line) bool) error {
	for {
		done, err := reader.step(ctx, pass)
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
		reader.wait = min(max(2*reader.wait, minWait), maxWait)
		if !reader.pause(ctx, reader.wait) || !reader.refresh(ctx) {
			return nil
		}
	}
}

// refresh reads the pod before its log is opened again: a replaced worker has the same
// name, and another reader reads its log. It returns false if the pod was deleted.
func (reader *reader) refresh(ctx context.Context) bool {
	pod, err := reader.feed.source.Get(ctx, reader.feed.origin.pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != reader.feed.origin.uid {
		return false
	}
	reader.lock.Lock()
	defer reader.lock.Unlock()
	if err == nil && reader.pod != nil {
		reader.pod = pod
	}
	return true
}

// step does what the container's state requires. done is true at the end of the log.
func (reader *reader) step(ctx context.Context, pass func(Line) bool) (done bool, err error) {
	state, exists := reader.state()
	if !exists {
		return true, nil
	}
	if err := reader.catchRuns(ctx, state, pass); err != nil {
		return false, err
	}
	switch {
	case !state.started && state.finished:
		reader.notify(noLogReason(&reader.feed.origin, state))
		return true, nil
	case !state.started, reader.complete == state.run && !state.finished:
		return !reader.pause(ctx, time.Minute), nil
	case reader.complete == state.run:
		return true, nil
	case state.running && !reader.settled():
		return false, reader.stream(ctx, pass)
	}
	before := reader.feed.position
	if err := reader.feed.read(ctx, reading{last: true}, pass); err != nil {
		return false, reader.resetWait(before, err)
	}
	reader.complete = state.run
	return state.finished || reader.settled(), nil
}

// catchRuns reads the rest of a run after the container was restarted.
func (reader *reader) catchRuns(ctx context.Context, state state, pass func(Line) bool) error {
	if state.run == reader.run {
		return nil
	}
	if missed := reader.run != "" && state.before != "" && state.before != reader.complete; missed {
		if state.before != reader.run {
			reader.notify(fmt.Sprintf("%s was restarted more than once; some of its lines may be lost", &reader.feed.origin))
		}
		err := reader.feed.read(ctx, reading{last: true, previous: true}, pass)
		if err != nil && !apierrors.IsBadRequest(err) && !apierrors.IsNotFound(err) && !errors.Is(err, errCleared) {
			return err
		}
	}
	reader.run = state.run
	reader.feed.position.pieces = 0
	return nil
}

// stream follows one stream until it ends. The pod tells later whether it is complete: a
// broken stream looks the same as a complete one.
func (reader *reader) stream(ctx context.Context, pass func(Line) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go reader.cutOff(ctx, cancel)
	before := reader.feed.position
	err := reader.feed.read(ctx, reading{follow: true}, pass)
	if reader.settled() && !errors.Is(err, errStopped) {
		return nil
	}
	if err == nil {
		err = errEnded
	}
	return reader.resetWait(before, err)
}

// errEnded: a stream has ended although the container was running.
var errEnded = errors.New("the stream has ended")

// cutOff cancels a stream that does not end by itself although no more lines come.
func (reader *reader) cutOff(ctx context.Context, cancel func()) {
	select {
	case <-reader.settle:
		cancel()
	case <-reader.deleted:
		if pause(ctx, grace) {
			cancel()
		}
	case <-ctx.Done():
	}
}

// resetWait resets the wait after failures if something was read since.
func (reader *reader) resetWait(before position, err error) error {
	if reader.feed.position != before {
		reader.wait = 0
	}
	return err
}

func (reader *reader) settled() bool {
	select {
	case <-reader.settle:
		return true
	default:
		return false
	}
}

// pause waits for a change of the pod. It returns false if there will be none.
func (reader *reader) pause(ctx context.Context, timeout time.Duration) bool {
	settle := reader.settle
	if reader.settled() {
		state, exists := reader.state()
		if !exists || !state.started || reader.complete == state.run {
			return false
		}
		// Existing lines must still be read.
		settle = nil
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-reader.changed:
	case <-timer.C:
	case <-settle:
	case <-ctx.Done():
		return false
	}
	return true
}
