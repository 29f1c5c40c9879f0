package joblog

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// follow passes on the existing lines of the pods in the order of their time, and then
// new lines until the job has finished and everything was read.
func follow(ctx context.Context, source Source, selection Selection, options Options, pass func(Line) bool) error {
	list, err := source.List(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follower := &follower{
		source: source, selection: selection, options: options, pass: pass,
		items: make(chan item), settle: make(chan struct{}), window: newWindow(options.Patience),
		readers: map[types.UID][]*reader{}, known: map[types.UID]bool{}, lastPod: map[place]string{},
	}
	if err := follower.catchUp(ctx, list.Items); err != nil {
		return err
	}
	return follower.run(ctx, list.ResourceVersion)
}

// follower manages all readers. Only the goroutine of run uses its fields.
type follower struct {
	source    Source
	selection Selection
	options   Options
	pass      func(Line) bool

	// items are the lines of readers, and their ends.
	items chan item
	// settle is closed to make readers finish.
	settle  chan struct{}
	window  *window
	readers map[types.UID][]*reader
	// running is how many readers have not finished.
	running int
	// known are the pods that are read or were not selected.
	known map[types.UID]bool
	// lastPod is the newest pod of each place.
	lastPod map[place]string
	ended   bool
}

// item is a line, or the end of its reader.
type item struct {
	line Line
	end  bool
	err  error
}

// catchUp reads the existing lines, strictly in the order of their time, and then starts
// the readers, which continue from there.
func (follower *follower) catchUp(ctx context.Context, pods []corev1.Pod) error {
	all := selected(follower.source, follower.selection, pods)
	if err := unknownContainer(follower.selection, all); err != nil {
		return err
	}
	for i := range pods {
		follower.known[pods[i].UID] = true
	}
	var started []*reader
	var feeds []*feed
	for _, attempts := range all {
		pod := attempts.pods[0]
		for _, reader := range follower.newReaders(pod, attempts.place) {
			started = append(started, reader)
			if stateOf(pod, reader.feed.origin.container).started {
				feeds = append(feeds, reader.feed)
			} else {
				reader.feed.options.Tail = nil
			}
		}
	}
	// The readers retry what cannot be read now.
	err := readAll(ctx, feeds, func(int) reading { return reading{} }, func(string) {}, follower.pass)
	if errors.Is(err, errStopped) || apierrors.IsForbidden(err) || ctx.Err() != nil {
		return err
	}
	for _, reader := range started {
		if tail := follower.options.Tail; tail != nil && *tail > 0 && !reader.feed.position.begun() {
			// There were no lines yet, so all lines are new.
			reader.feed.options.Tail = nil
		}
		follower.start(ctx, reader)
	}
	return nil
}

func (follower *follower) newReaders(pod *corev1.Pod, at place) []*reader {
	follower.lastPod[at] = pod.Name
	for _, origin := range originsOf(follower.selection, pod, at) {
		feed := &feed{source: follower.source, origin: origin, options: follower.options}
		follower.readers[pod.UID] = append(follower.readers[pod.UID], newReader(feed, pod, follower.options.Notify, follower.settle))
	}
	return follower.readers[pod.UID]
}

func (follower *follower) start(ctx context.Context, reader *reader) {
	follower.running++
	send := func(item item) bool {
		select {
		case follower.items <- item:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		err := reader.follow(ctx, func(line Line) bool { return send(item{line: line}) })
		send(item{end: true, err: err})
	}()
}

// run is the main loop.
func (follower *follower) run(ctx context.Context, resourceVersion string) error {
	changes := make(chan change)
	go watchPods(ctx, follower.source, resourceVersion, follower.options.Notify, changes)
	ended := follower.options.Ended
	timer := time.NewTimer(0)
	defer timer.Stop()
	var patience <-chan time.Time
	for {
		if !follower.release() {
			return errStopped
		}
		if follower.ended && follower.running == 0 {
			return follower.result()
		}
		if due, waits := follower.window.due(); waits {
			timer.Reset(time.Until(due))
		}
		select {
		case item := <-follower.items:
			if err := follower.take(item); err != nil {
				return err
			}
		case change := <-changes:
			if err := follower.apply(ctx, change); err != nil {
				return err
			}
		case <-ended:
			ended, patience = nil, time.After(grace)
			follower.listAgain(ctx)
			follower.ended = true
		case <-patience:
			patience = nil
			close(follower.settle)
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// result is an error if the job has finished without any selected pod.
func (follower *follower) result() error {
	if len(follower.lastPod) == 0 {
		return &NoPodsError{Others: len(follower.known)}
	}
	return nil
}

// release passes on the lines that have waited long enough. With a single reader, lines
// need not wait.
func (follower *follower) release() bool {
	for {
		line, due := follower.window.take(time.Now())
		if !due && follower.running < 2 {
			line, due = follower.window.flush()
		}
		if !due {
			return true
		}
		if !follower.pass(line) {
			return false
		}
	}
}

func (follower *follower) take(item item) error {
	if !item.end {
		follower.window.add(item.line, time.Now())
		return nil
	}
	follower.running--
	return item.err
}

// apply applies a change of pods.
func (follower *follower) apply(ctx context.Context, change change) error {
	if change.err != nil {
		return change.err
	}
	for _, uid := range change.deleted {
		follower.update(uid, nil)
	}
	if change.all {
		follower.forget(change.pods)
	}
	for _, pod := range change.pods {
		if follower.known[pod.UID] {
			follower.update(pod.UID, pod)
			continue
		}
		follower.known[pod.UID] = true
		if at, chosen := placeOf(follower.source, follower.selection, pod); chosen {
			follower.startPod(ctx, pod, at)
		}
	}
	return nil
}

// startPod starts to read a new pod.
func (follower *follower) startPod(ctx context.Context, pod *corev1.Pod, at place) {
	if before := follower.lastPod[at]; before != "" {
		follower.options.Notify(fmt.Sprintf("%s was restarted: pod %s replaces %s", at, pod.Name, before))
	}
	for _, reader := range follower.newReaders(pod, at) {
		// Tail only limits existing lines, not those of a new pod.
		reader.feed.options.Tail = nil
		follower.start(ctx, reader)
	}
}

func (follower *follower) update(uid types.UID, pod *corev1.Pod) {
	for _, reader := range follower.readers[uid] {
		reader.update(pod)
	}
	if pod == nil {
		delete(follower.readers, uid)
	}
}

// forget updates the readers of pods that do not exist any more.
func (follower *follower) forget(all []*corev1.Pod) {
	existing := map[types.UID]bool{}
	for _, pod := range all {
		existing[pod.UID] = true
	}
	for uid := range follower.readers {
		if !existing[uid] {
			follower.update(uid, nil)
		}
	}
}

// listAgain finds the pods that the watch has not reported yet. The job has finished, so
// there will be no others.
func (follower *follower) listAgain(ctx context.Context) {
	if list, err := follower.source.List(ctx); err == nil {
		// Only an error of the change itself is returned, and it has none.
		_ = follower.apply(ctx, snapshot(list))
	}
}
