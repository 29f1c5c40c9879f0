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
	"k8s.io/apimachinery/pkg/watch"
)

// change is a change of pods.
type change struct {
	pods []*corev1.Pod
	// all: the job has no other pods.
	all     bool
	deleted []types.UID
	// err stops everything.
	err error
}

func snapshot(list *corev1.PodList) change {
	now := change{all: true}
	for i := range list.Items {
		now.pods = append(now.pods, &list.Items[i])
	}
	return now
}

// watchPods sends changes of the pods. After a watch has ended, it lists all pods and
// watches again.
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
				notify(fmt.Sprintf("the pods cannot be watched (%v); retrying", err))
			}
			if !pause(ctx, min(time.Duration(failed)*200*time.Millisecond, maxWait)) {
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
			send(change{deleted: []types.UID{pod.UID}})
		case event.Type == watch.Added || event.Type == watch.Modified:
			send(change{pods: []*corev1.Pod{pod}})
		}
	}
	return errWatchEnded
}
