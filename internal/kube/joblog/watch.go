package joblog

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// change is what has become of pods.
type change struct {
	pods []*corev1.Pod
	// all: there are no others.
	all  bool
	gone []types.UID
	// err ends it all.
	err error
}

func snapshot(list *corev1.PodList) change {
	now := change{all: true}
	for i := range list.Items {
		now.pods = append(now.pods, &list.Items[i])
	}
	return now
}

// watchPods tells what becomes of the pods. A watch that ends is taken up again;
// what happened meanwhile is found by looking at everything.
func watchPods(ctx context.Context, source Source, resourceVersion string, notify func(string), changes chan<- change) {
	send := func(change change) bool {
		select {
		case changes <- change:
			return true
		case <-ctx.Done():
			return false
		}
	}
	failed := 0
	for {
		err := watchOnce(ctx, source, resourceVersion, send)
		for list := (*corev1.PodList)(nil); list == nil; {
			if ctx.Err() != nil {
				return
			}
			if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				send(change{err: err})
				return
			}
			if failed++; failed == 3 {
				notify(fmt.Sprintf("the pods cannot be watched (%v); trying again", err))
			}
			if !pause(ctx, min(time.Duration(failed)*200*time.Millisecond, longestWait)) {
				return
			}
			if list, err = source.List(ctx); err != nil {
				list = nil
				continue
			}
			failed, resourceVersion = 0, list.ResourceVersion
			if !send(snapshot(list)) {
				return
			}
		}
	}
}

// errWatchEnded: API servers end every watch after a while.
var errWatchEnded = errors.New("the watch has ended")

func watchOnce(ctx context.Context, source Source, resourceVersion string, send func(change) bool) error {
	watched, err := source.Watch(ctx, resourceVersion)
	if err != nil {
		return err
	}
	defer watched.Stop()
	for event := range watched.ResultChan() {
		pod, isPod := event.Object.(*corev1.Pod)
		switch {
		case event.Type == watch.Error:
			return apierrors.FromObject(event.Object)
		case !isPod:
			continue
		case event.Type == watch.Deleted:
			send(change{gone: []types.UID{pod.UID}})
		case event.Type == watch.Added || event.Type == watch.Modified:
			send(change{pods: []*corev1.Pod{pod}})
		}
	}
	return errWatchEnded
}
