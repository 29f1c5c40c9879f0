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

// once passes on the existing lines of the pods.
func once(ctx context.Context, source Source, selection Selection, options Options, pass func(Line) bool) error {
	list, err := source.List(ctx)
	if err != nil {
		return err
	}
	all := selected(source, selection, list.Items)
	if len(all) == 0 {
		return &NoPodsError{Others: len(list.Items)}
	}
	if err := unknownContainer(selection, all); err != nil {
		return err
	}
	if options.Previous {
		return readPrevious(ctx, source, selection, options, all, pass)
	}
	var feeds []*feed
	var missing []string
	for _, attempts := range all {
		pod := attempts.pods[0]
		for _, origin := range originsOf(selection, pod, attempts.place) {
			if state := stateOf(pod, origin.container); !state.started {
				missing = append(missing, noLogReason(&origin, state))
				continue
			}
			feeds = append(feeds, &feed{source: source, origin: origin, options: options})
		}
	}
	if len(feeds) == 0 {
		return &NotStartedError{Reasons: missing}
	}
	for _, reason := range missing {
		options.Notify(reason)
	}
	return readAll(ctx, feeds, func(int) reading { return reading{last: true} }, options.Notify, pass)
}

func noLogReason(origin *origin, state state) string {
	if state.finished {
		return fmt.Sprintf("%s has no log: its container never ran", origin)
	}
	return fmt.Sprintf("%s has no log yet: %s", origin, state.waits)
}

// readPrevious passes on the lines of the previous runs.
func readPrevious(ctx context.Context, source Source, selection Selection, options Options, all []attempts, pass func(Line) bool) error {
	var runs, pods []*feed
	var names []string
	for _, attempts := range all {
		newest := attempts.pods[0]
		names = append(names, newest.Name)
		for _, origin := range originsOf(selection, newest, attempts.place) {
			if stateOf(newest, origin.container).before != "" {
				runs = append(runs, &feed{source: source, origin: origin, options: options})
			} else if before := podBefore(attempts.pods, origin.container); before != nil {
				origin.pod, origin.uid = before.Name, before.UID
				pods = append(pods, &feed{source: source, origin: origin, options: options})
			}
		}
	}
	if len(runs)+len(pods) == 0 {
		return &NoPreviousError{Pods: names}
	}
	return readAll(ctx, append(runs, pods...), func(index int) reading { return reading{last: true, previous: index < len(runs)} }, options.Notify, pass)
}

// podBefore returns the newest pod, except the first, that has run the container.
func podBefore(pods []*corev1.Pod, container string) *corev1.Pod {
	for _, pod := range pods[1:] {
		if stateOf(pod, container).started {
			return pod
		}
	}
	return nil
}

// readAll reads feeds up to the current ends of their logs, in parallel, and each as
// fast as its lines are consumed.
func readAll(ctx context.Context, feeds []*feed, how func(index int) reading, notify func(string), pass func(Line) bool) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	errs := make([]error, len(feeds))
	logs := make([]<-chan Line, len(feeds))
	for i, feed := range feeds {
		lines := make(chan Line, 4)
		logs[i] = lines
		running.Go(func() {
			defer close(lines)
			errs[i] = feed.readInto(inner, how(i), notify, lines)
		})
	}
	stopped := !merge(inner, logs, pass)
	cancel()
	running.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case stopped:
		return errStopped
	default:
		return errors.Join(errs...)
	}
}

func (f *feed) readInto(ctx context.Context, how reading, notify func(string), lines chan<- Line) error {
	err := f.readWithRetries(ctx, how, func(line Line) bool {
		select {
		case lines <- line:
			return true
		case <-ctx.Done():
			return false
		}
	})
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		notify(fmt.Sprintf("%s was deleted, and its log with it", &f.origin))
		return nil
	default:
		return fmt.Errorf("the log of %s, container %s: %w", &f.origin, f.origin.container, err)
	}
}

// readWithRetries reopens a broken stream as long as it makes progress.
func (f *feed) readWithRetries(ctx context.Context, how reading, pass func(Line) bool) error {
	const maxFailures = 5
	for failed := 0; ; {
		before := f.position
		err := f.read(ctx, how, pass)
		if err == nil || errors.Is(err, errStopped) || ctx.Err() != nil || isFinal(err) {
			return err
		}
		if failed++; f.position != before {
			failed = 0
		}
		if failed == maxFailures {
			return err
		}
		if !pause(ctx, time.Duration(failed)*200*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// isFinal reports whether a retry would fail with the same error.
func isFinal(err error) bool {
	return errors.Is(err, errCleared) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err)
}

// pause waits. It returns false if the context is canceled.
func pause(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
