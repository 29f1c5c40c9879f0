// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// leadersQueue drops requests until its replica leads. Without workers, the queue would
// grow with every job that ever existed. A new leader enqueues all jobs.
type leadersQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	elected <-chan struct{}
}

func newLeadersQueue(elected <-chan struct{}) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(name string, pauses workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		return &leadersQueue{
			PriorityQueue: priorityqueue.New(name, func(options *priorityqueue.Opts[reconcile.Request]) {
				options.RateLimiter, options.Log = pauses, ctrl.Log.WithValues("controller", name)
			}),
			elected: elected,
		}
	}
}

func (lq *leadersQueue) leads() bool {
	select {
	case <-lq.elected:
		return true
	default:
		return false
	}
}

func (lq *leadersQueue) Add(request reconcile.Request) {
	if lq.leads() {
		lq.PriorityQueue.Add(request)
	}
}

func (lq *leadersQueue) AddAfter(request reconcile.Request, pause time.Duration) {
	if lq.leads() {
		lq.PriorityQueue.AddAfter(request, pause)
	}
}

func (lq *leadersQueue) AddRateLimited(request reconcile.Request) {
	if lq.leads() {
		lq.PriorityQueue.AddRateLimited(request)
	}
}

func (lq *leadersQueue) AddWithOpts(options priorityqueue.AddOpts, requests ...reconcile.Request) {
	if lq.leads() {
		lq.PriorityQueue.AddWithOpts(options, requests...)
	}
}

// enqueueAllWhenLeading is a source that enqueues every job as soon as this replica
// leads. Watches enqueue the jobs that the cache shows later.
func (r *Reconciler) enqueueAllWhenLeading(elected <-chan struct{}) func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			select {
			case <-ctx.Done():
				return
			case <-elected:
			}
			if err := r.enqueueAll(ctx, queue); err != nil && ctx.Err() == nil {
				ctrl.Log.Error(err, "enqueue all jobs", "kind", r.kind.name())
			}
		}()
		return nil
	}
}

// enqueueAll enqueues every job, and every snapshot of a runtime.
func (r *Reconciler) enqueueAll(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	if r.kind.name().Traits().IsWorkload && !r.kind.hasWorkloads() {
		return nil
	}
	list := r.kind.emptyList()
	// The list is large and only read: it is not copied.
	if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	err := meta.EachListItem(list, func(object runtime.Object) error {
		if r.isOfOthers(object.(client.Object)) {
			return nil
		}
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object.(client.Object))})
		return nil
	})
	return errors.Join(err, r.snapshots.enqueueAll(ctx, queue))
}
