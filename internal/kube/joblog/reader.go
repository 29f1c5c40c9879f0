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

// How long a stream may take to end by itself once there is nothing more to come,
// and how long a reader waits before it asks again.
const (
	grace        = 2 * time.Second
	shortestWait = 100 * time.Millisecond
	longestWait  = 3 * time.Second
)

// reader follows one container: it waits until there is a log, reads on when it is
// started anew in its pod, and takes streams that break up again.
type reader struct {
	feed   *feed
	notify func(string)
	// settle is closed when nothing more will come: what is there is read, and no
	// more.
	settle <-chan struct{}

	lock sync.Mutex
	pod  *corev1.Pod
	// changed wakes the reader when the pod is another.
	changed chan struct{}
	// gone is closed when the pod is.
	gone chan struct{}

	// run of the container that is read, and the last one that was read to its end.
	run, complete string
	wait          time.Duration
}

func newReader(feed *feed, pod *corev1.Pod, notify func(string), settle <-chan struct{}) *reader {
	return &reader{
		feed: feed, pod: pod, notify: notify, settle: settle, changed: make(chan struct{}, 1), gone: make(chan struct{}),
		run: stateOf(pod, feed.origin.container).run,
	}
}

// update tells the reader how its pod stands; nil if it is gone.
func (reader *reader) update(pod *corev1.Pod) {
	reader.lock.Lock()
	defer reader.lock.Unlock()
	if reader.pod == nil {
		return
	}
	if reader.pod = pod; pod == nil {
		close(reader.gone)
	}
	select {
	case reader.changed <- struct{}{}:
	default:
	}
}

// state is how the container stands; false if its pod is gone.
func (reader *reader) state() (state, bool) {
	reader.lock.Lock()
	defer reader.lock.Unlock()
	if reader.pod == nil {
		return state{}, false
	}
	return stateOf(reader.pod, reader.feed.origin.container), true
}

// follow reads until there is nothing more to come.
func (reader *reader) follow(ctx context.Context, pass func(Line) bool) error {
	for {
		over, err := reader.step(ctx, pass)
		switch {
		case err == nil && over:
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
		reader.wait = min(max(2*reader.wait, shortestWait), longestWait)
		if !reader.pause(ctx, reader.wait) || !reader.refresh(ctx) {
			return nil
		}
	}
}

// refresh looks at the pod before it is asked for its log again: a worker that was
// replaced has the same name, and its log is for another reader. It is false if
// the pod is gone.
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

// step does what the container's state asks for. It is true when the log is over.
func (reader *reader) step(ctx context.Context, pass func(Line) bool) (over bool, err error) {
	state, there := reader.state()
	if !there {
		return true, nil
	}
	if err := reader.catchRuns(ctx, state, pass); err != nil {
		return false, err
	}
	switch {
	case !state.started && state.over:
		reader.notify(nothingYet(&reader.feed.origin, state))
		return true, nil
	case !state.started, reader.complete == state.run && !state.over:
		return !reader.pause(ctx, time.Minute), nil
	case reader.complete == state.run:
		return true, nil
	case state.running && !reader.settled():
		return false, reader.stream(ctx, pass)
	}
	before := reader.feed.position
	if err := reader.feed.read(ctx, reading{last: true}, pass); err != nil {
		return false, reader.calmed(before, err)
	}
	reader.complete = state.run
	return state.over || reader.settled(), nil
}

// catchRuns reads what is left of a run that was followed by another.
func (reader *reader) catchRuns(ctx context.Context, state state, pass func(Line) bool) error {
	if state.run == reader.run {
		return nil
	}
	if missed := reader.run != "" && state.before != "" && state.before != reader.complete; missed {
		if state.before != reader.run {
			reader.notify(fmt.Sprintf("%s was started anew more than once; some of its lines may be lost", &reader.feed.origin))
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

// stream follows one stream until it ends. What ends it is found out afterwards,
// from the pod: a stream that was cut off looks the same as one that is over.
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
	return reader.calmed(before, err)
}

// errEnded: a stream has ended although the container was last seen running.
var errEnded = errors.New("the stream has ended")

// cutOff ends a stream that does not end by itself although nothing more comes.
func (reader *reader) cutOff(ctx context.Context, cancel func()) {
	select {
	case <-reader.settle:
		cancel()
	case <-reader.gone:
		if pause(ctx, grace) {
			cancel()
		}
	case <-ctx.Done():
	}
}

// calmed forgets earlier failures if something was read since.
func (reader *reader) calmed(before position, err error) error {
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

// pause waits for news. It is false if there will be none.
func (reader *reader) pause(ctx context.Context, long time.Duration) bool {
	settle := reader.settle
	if reader.settled() {
		state, there := reader.state()
		if !there || !state.started || reader.complete == state.run {
			return false
		}
		// What is there is still to be read.
		settle = nil
	}
	timer := time.NewTimer(long)
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
