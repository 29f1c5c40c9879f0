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

// leadersQueue takes nothing before its replica leads. Nobody would work it off: each
// job that ever was would wait in it. Whoever begins to lead looks at all jobs.
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

// lookAtAll is a source that has every job looked at as soon as this replica leads.
// What a cache shows later than that, its watches tell.
func (r *Reconciler) enqueueAllWhenLeading(elected <-chan struct{}) func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			select {
			case <-ctx.Done():
				return
			case <-elected:
			}
			if err := r.enqueueAll(ctx, queue); err != nil && ctx.Err() == nil {
				ctrl.Log.Error(err, "look at all jobs", "kind", r.kind.name())
			}
		}()
		return nil
	}
}

// enqueueAll has every job looked at, and every snapshot of a runtime.
func (r *Reconciler) enqueueAll(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	list := r.kind.emptyList()
	// It is only read, and large.
	if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	err := meta.EachListItem(list, func(object runtime.Object) error {
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object.(client.Object))})
		return nil
	})
	return errors.Join(err, r.snapshots.enqueueAll(ctx, queue))
}
