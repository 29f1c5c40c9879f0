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

// follow hands on what the pods have written, in the order of its time, and then
// what they write, until the job has ended and all of it was read.
func follow(ctx context.Context, source Source, selection Selection, options Options, pass func(Line) bool) error {
	list, err := source.List(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follower := &follower{
		source: source, selection: selection, options: options, hand: pass,
		news: make(chan item), settle: make(chan struct{}), window: newWindow(options.Patience),
		readers: map[types.UID][]*reader{}, known: map[types.UID]bool{}, lastPod: map[place]string{},
	}
	if err := follower.catchUp(ctx, list.Items); err != nil {
		return err
	}
	return follower.run(ctx, list.ResourceVersion)
}

// follower is the one that holds all readers together. Its fields belong to the
// goroutine that it runs in.
type follower struct {
	source    Source
	selection Selection
	options   Options
	hand      func(Line) bool

	// news are lines of readers, and their ends.
	news chan item
	// settle is closed when readers shall come to an end.
	settle  chan struct{}
	window  *window
	readers map[types.UID][]*reader
	// running is how many readers have not ended.
	running int
	// known are the pods that are read, or were left out.
	known map[types.UID]bool
	// lastPod is the pod that was read last in each place.
	lastPod map[place]string
	ended   bool
}

// item is a line, or the end of its reader.
type item struct {
	line Line
	end  bool
	err  error
}

// catchUp reads what is there, strictly in the order of its time, and then starts
// the readers, which go on from there.
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
	// What cannot be read now is tried again by its reader.
	err := readAll(ctx, feeds, func(int) reading { return reading{} }, func(string) {}, follower.hand)
	if errors.Is(err, errStopped) || apierrors.IsForbidden(err) || ctx.Err() != nil {
		return err
	}
	for _, reader := range started {
		if tail := follower.options.Tail; tail != nil && *tail > 0 && !reader.feed.position.begun() {
			// There was nothing yet, so all that comes is new.
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
		case follower.news <- item:
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

// run is where everything comes together.
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
			return follower.verdict()
		}
		if due, waits := follower.window.due(); waits {
			timer.Reset(time.Until(due))
		}
		select {
		case item := <-follower.news:
			if err := follower.take(item); err != nil {
				return err
			}
		case change := <-changes:
			if err := follower.apply(ctx, change); err != nil {
				return err
			}
		case <-ended:
			ended, patience = nil, time.After(grace)
			follower.lookAgain(ctx)
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

// verdict: a job may end without ever having had a pod that was asked for.
func (follower *follower) verdict() error {
	if len(follower.lastPod) == 0 {
		return &NoPodsError{Others: len(follower.known)}
	}
	return nil
}

// release hands on the lines that have waited long enough. If no other pod can
// have an earlier one, none waits.
func (follower *follower) release() bool {
	for {
		line, due := follower.window.take(time.Now())
		if !due && follower.running < 2 {
			line, due = follower.window.flush()
		}
		if !due {
			return true
		}
		if !follower.hand(line) {
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

// apply takes in what has become of pods.
func (follower *follower) apply(ctx context.Context, change change) error {
	if change.err != nil {
		return change.err
	}
	for _, uid := range change.gone {
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
			follower.meet(ctx, pod, at)
		}
	}
	return nil
}

// meet begins to read a pod that was not there before.
func (follower *follower) meet(ctx context.Context, pod *corev1.Pod, at place) {
	if before := follower.lastPod[at]; before != "" {
		follower.options.Notify(fmt.Sprintf("%s was started anew: pod %s after %s", at, pod.Name, before))
	}
	for _, reader := range follower.newReaders(pod, at) {
		// How much of the past is shown says nothing of a pod that begins now.
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

// forget tells the readers whose pods are not among all that there are.
func (follower *follower) forget(all []*corev1.Pod) {
	there := map[types.UID]bool{}
	for _, pod := range all {
		there[pod.UID] = true
	}
	for uid := range follower.readers {
		if !there[uid] {
			follower.update(uid, nil)
		}
	}
}

// lookAgain finds the pods that a watch has not told of yet. The job has ended, so
// there will be no others.
func (follower *follower) lookAgain(ctx context.Context) {
	if list, err := follower.source.List(ctx); err == nil {
		// Only an error of the change itself is returned, and it has none.
		_ = follower.apply(ctx, snapshot(list))
	}
}
