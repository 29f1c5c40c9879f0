// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// A standby replica queues nothing. A new leader queues all jobs, and then their events.
func TestOnlyLeaderQueues(t *testing.T) {
	name := metav1.ObjectMeta{Namespace: "team", Name: "train"}
	request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "team", Name: "train"}}
	cluster := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(&v2beta1.MPIJob{ObjectMeta: name}, &v2alpha1.TrainJob{ObjectMeta: name}).Build()
	for _, kind := range []kind{mpiJobs{}, trainJobs{}} {
		t.Run(string(kind.name()), func(t *testing.T) {
			elected := make(chan struct{})
			queue := newLeadersQueue(elected)(t.Name(), RetryPauses()).(priorityqueue.PriorityQueue[reconcile.Request])
			defer queue.ShutDown()
			reconciler := &Reconciler{Client: cluster, kind: kind}
			if err := reconciler.enqueueAllWhenLeading(elected)(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
			addInEveryWay := func() {
				queue.Add(request)
				queue.AddAfter(request, time.Millisecond)
				queue.AddRateLimited(request)
				queue.AddWithOpts(priorityqueue.AddOpts{}, request)
			}
			addInEveryWay()
			time.Sleep(50 * time.Millisecond)
			if length := queue.Len(); length != 0 {
				t.Errorf("a standby replica has %d jobs in its queue", length)
			}
			close(elected)
			first, _ := queue.Get()
			if queue.Done(first); first != request {
				t.Errorf("a new leader has %v in its queue, want %v", first, request)
			}
			for way, add := range map[string]func(){
				"Add": func() { queue.Add(request) }, "AddAfter": func() { queue.AddAfter(request, time.Millisecond) },
				"AddRateLimited": func() { queue.AddRateLimited(request) }, "AddWithOpts": func() { queue.AddWithOpts(priorityqueue.AddOpts{}, request) },
			} {
				add()
				found, _ := queue.Get()
				if queue.Done(found); found != request {
					t.Errorf("%s enqueues %v", way, found)
				}
			}
		})
	}
}
