// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// podCount counts the pods of a namespace by one watch: whoever asks again and again
// is a load of its own.
type podCount struct {
	there   atomic.Int64
	changed chan struct{}
	stop    func()
}

func (cluster *cluster) watchPods(ctx context.Context, namespace string) (*podCount, error) {
	ctx, stop := context.WithCancel(ctx)
	count := &podCount{changed: make(chan struct{}, 1), stop: stop}
	// The informer begins anew if the API server, busy as it is, drops the watch.
	informer := cache.NewSharedInformer(cache.NewListWatchFromClient(cluster.clientset.CoreV1().RESTClient(), "pods", namespace, fields.Everything()), &corev1.Pod{}, 0)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { count.add(1) },
		DeleteFunc: func(any) { count.add(-1) },
	})
	if err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("watch pods: %w", context.Cause(ctx))
	}
	return count, nil
}

func (count *podCount) add(pods int64) {
	count.there.Add(pods)
	select {
	case count.changed <- struct{}{}:
	default:
	}
}

// until tells when there were as many pods as wanted.
func (count *podCount) until(ctx context.Context, want int) (time.Time, error) {
	for count.there.Load() < int64(want) {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%w: %d of %d pods are there", context.Cause(ctx), count.there.Load(), want)
		case <-count.changed:
		}
	}
	return time.Now(), nil
}
