// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trireme-mpi/trireme/internal/operator"
)

// queue is a work queue without goroutines: the schedule takes from it. A job is
// looked at by one at a time, and again if it was added meanwhile.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	ready  []reconcile.Request
	due    map[reconcile.Request]time.Time
	busy   *reconcile.Request
	again  bool
	pauses workqueue.TypedRateLimiter[reconcile.Request]
}

func newQueue() *queue {
	return &queue{due: map[reconcile.Request]time.Time{}, pauses: operator.RetryPauses()}
}

func (queue *queue) Add(job reconcile.Request) {
	switch {
	case queue.busy != nil && *queue.busy == job:
		queue.again = true
	case !slices.Contains(queue.ready, job):
		queue.ready = append(queue.ready, job)
	}
}

// AddAfter keeps the earlier of two times.
func (queue *queue) AddAfter(job reconcile.Request, wait time.Duration) {
	if wait <= 0 {
		queue.Add(job)
		return
	}
	at := time.Now().Add(wait)
	if known, waits := queue.due[job]; !waits || at.Before(known) {
		queue.due[job] = at
	}
}

// isReady tells whether there is a job to look at now.
func (queue *queue) isReady() bool {
	// In the order of time, then of names: a seed has one history.
	jobs := slices.SortedFunc(maps.Keys(queue.due), func(a, b reconcile.Request) int {
		return cmp.Or(queue.due[a].Compare(queue.due[b]), cmp.Compare(a.String(), b.String()))
	})
	for _, job := range jobs {
		if !queue.due[job].After(time.Now()) {
			delete(queue.due, job)
			queue.Add(job)
		}
	}
	return queue.busy == nil && len(queue.ready) > 0
}

// nextDue is how long until time alone makes a job ready.
func (queue *queue) nextDue() (wait time.Duration, waits bool) {
	for _, at := range queue.due {
		if left := time.Until(at); !waits || left < wait {
			wait, waits = left, true
		}
	}
	return wait, waits
}

func (queue *queue) take() reconcile.Request {
	job := queue.ready[0]
	queue.ready, queue.busy, queue.again = queue.ready[1:], &job, false
	return job
}

func (queue *queue) finish(result ctrl.Result, err error) {
	job := *queue.busy
	queue.busy = nil
	if queue.again {
		queue.Add(job)
	}
	if err != nil {
		queue.AddAfter(job, queue.pauses.When(job))
		return
	}
	queue.pauses.Forget(job)
	if result.RequeueAfter > 0 {
		queue.AddAfter(job, result.RequeueAfter)
	}
}
