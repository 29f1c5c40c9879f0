// SPDX-License-Identifier: Apache-2.0

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
func (f *follower) catchUp(ctx context.Context, pods []corev1.Pod) error {
	all := selected(f.source, f.selection, pods)
	if err := unknownContainer(f.selection, all); err != nil {
		return err
	}
	for i := range pods {
		f.known[pods[i].UID] = true
	}
	var started []*reader
	var feeds []*feed
	for _, attempts := range all {
		pod := attempts.pods[0]
		for _, reader := range f.newReaders(pod, attempts.place) {
			started = append(started, reader)
			if stateOf(pod, reader.feed.origin.container).started {
				feeds = append(feeds, reader.feed)
			} else {
				reader.feed.options.Tail = nil
			}
		}
	}
	// The readers retry what cannot be read now.
	err := readAll(ctx, feeds, func(int) reading { return reading{} }, func(string) {}, f.pass)
	if errors.Is(err, errStopped) || apierrors.IsForbidden(err) || ctx.Err() != nil {
		return err
	}
	for _, reader := range started {
		if tail := f.options.Tail; tail != nil && *tail > 0 && !reader.feed.position.begun() {
			// There were no lines yet, so all lines are new.
			reader.feed.options.Tail = nil
		}
		f.start(ctx, reader)
	}
	return nil
}

func (f *follower) newReaders(pod *corev1.Pod, at place) []*reader {
	f.lastPod[at] = pod.Name
	for _, origin := range originsOf(f.selection, pod, at) {
		feed := &feed{source: f.source, origin: origin, options: f.options}
		f.readers[pod.UID] = append(f.readers[pod.UID], newReader(feed, pod, f.options.Notify, f.settle))
	}
	return f.readers[pod.UID]
}

func (f *follower) start(ctx context.Context, reader *reader) {
	f.running++
	send := func(item item) bool {
		select {
		case f.items <- item:
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
func (f *follower) run(ctx context.Context, resourceVersion string) error {
	changes := make(chan change)
	go watchPods(ctx, f.source, resourceVersion, f.options.Notify, changes)
	ended := f.options.Ended
	timer := time.NewTimer(0)
	defer timer.Stop()
	var patience <-chan time.Time
	for {
		if !f.release() {
			return errStopped
		}
		if f.ended && f.running == 0 {
			return f.result()
		}
		if due, waits := f.window.due(); waits {
			timer.Reset(time.Until(due))
		}
		select {
		case item := <-f.items:
			if err := f.take(item); err != nil {
				return err
			}
		case change := <-changes:
			if err := f.apply(ctx, change); err != nil {
				return err
			}
		case <-ended:
			ended, patience = nil, time.After(grace)
			f.listAgain(ctx)
			f.ended = true
		case <-patience:
			patience = nil
			close(f.settle)
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// result is an error if the job has finished without any selected pod.
func (f *follower) result() error {
	if len(f.lastPod) == 0 {
		return &NoPodsError{Others: len(f.known)}
	}
	return nil
}

// release passes on the lines that have waited long enough. With a single reader, lines
// need not wait.
func (f *follower) release() bool {
	for {
		line, due := f.window.take(time.Now())
		if !due && f.running < 2 {
			line, due = f.window.flush()
		}
		if !due {
			return true
		}
		if !f.pass(line) {
			return false
		}
	}
}

func (f *follower) take(item item) error {
	if !item.end {
		f.window.add(item.line, time.Now())
		return nil
	}
	f.running--
	return item.err
}

// apply applies a change of pods.
func (f *follower) apply(ctx context.Context, change change) error {
	if change.err != nil {
		return change.err
	}
	for _, uid := range change.deleted {
		f.update(uid, nil)
	}
	if change.all {
		f.forget(change.pods)
	}
	for _, pod := range change.pods {
		if f.known[pod.UID] {
			f.update(pod.UID, pod)
			continue
		}
		f.known[pod.UID] = true
		if at, chosen := placeOf(f.source, f.selection, pod); chosen {
			f.startPod(ctx, pod, at)
		}
	}
	return nil
}

// startPod starts to read a new pod.
func (f *follower) startPod(ctx context.Context, pod *corev1.Pod, at place) {
	if before := f.lastPod[at]; before != "" {
		f.options.Notify(fmt.Sprintf("%s was restarted: pod %s replaces %s", at, pod.Name, before))
	}
	for _, reader := range f.newReaders(pod, at) {
		// Tail only limits existing lines, not those of a new pod.
		reader.feed.options.Tail = nil
		f.start(ctx, reader)
	}
}

func (f *follower) update(uid types.UID, pod *corev1.Pod) {
	for _, reader := range f.readers[uid] {
		reader.update(pod)
	}
	if pod == nil {
		delete(f.readers, uid)
	}
}

// forget updates the readers of pods that do not exist any more.
func (f *follower) forget(all []*corev1.Pod) {
	existing := map[types.UID]bool{}
	for _, pod := range all {
		existing[pod.UID] = true
	}
	for uid := range f.readers {
		if !existing[uid] {
			f.update(uid, nil)
		}
	}
}

// listAgain finds the pods that the watch has not reported yet. The job has finished, so
// there will be no others.
func (f *follower) listAgain(ctx context.Context) {
	if list, err := f.source.List(ctx); err == nil {
		// Only an error of the change itself is returned, and it has none.
		_ = f.apply(ctx, snapshot(list))
	}
}
