// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	workloadKind     = schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "Workload"}
	clusterQueueKind = schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "ClusterQueue"}
)

// queueOf is the name of the LocalQueue of a place.
const queueOf = "queue"

// submit creates a job in the place's queue.
func (kind jobKind) submit(place *place, shape jobShape) {
	place.Helper()
	shape.labels = map[string]string{"kueue.x-k8s.io/queue-name": queueOf}
	if shape.priority != "" {
		shape.labels["kueue.x-k8s.io/priority-class"] = shape.priority
	}
	kind.create(place, shape)
}

// createQueue makes a LocalQueue for jobs of so many pods at once. Memory is
// there, because the operator's own init container asks for some: Kueue lets
// nothing in that asks for what its queue does not cover.
func (place *place) createQueue(pods int) {
	place.Helper()
	place.createQueueOn("{}", pods)
}

// createQueueOn creates a LocalQueue for that many CPUs of nodes that the spec of a
// ResourceFlavor describes.
func (place *place) createQueueOn(flavor string, cpus int) {
	place.Helper()
	place.create(fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: %[1]s}
spec: %[4]s
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: %[1]s}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors: [{name: %[1]s, resources: [{name: cpu, nominalQuota: %[2]d}, {name: memory, nominalQuota: 1Ti}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: %[3]s}
spec: {clusterQueue: %[1]s}
`, place.namespace, cpus, queueOf, flavor))
}

// workload is what Kueue made of a job.
func (kind jobKind) workload(place *place, name string) (*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(workloadKind)
	if err := place.client.List(place.Context(), list, client.InNamespace(place.namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		owner := metav1.GetControllerOf(&list.Items[i])
		if owner != nil && owner.Kind == kind.queued.Kind && owner.Name == name {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("%s %s has no Workload", kind.queued.Kind, name)
}

// runs asks that Kueue has let the job in, that its pods run, and that Kueue knows.
func (kind jobKind) runs(place *place, name string) func() error {
	return func() error {
		workload, err := kind.workload(place, name)
		if err != nil {
			return err
		}
		if err := kind.isSuspended(place, name, false); err != nil {
			return err
		}
		if err := place.run(kind.pods(name), jobPods); err != nil {
			return err
		}
		for _, want := range []string{"Admitted", "PodsReady"} {
			if have := condition(workload, want); have.Status != metav1.ConditionTrue {
				return fmt.Errorf("the Workload is not %s: %s %s", want, have.Reason, have.Message)
			}
		}
		return kind.says(place, name, stateRunning)
	}
}

// waits asks that the job is suspended, has no pod and takes nothing of the quota,
// and that Kueue says why.
func (kind jobKind) waits(place *place, name, why string) func() error {
	return func() error {
		if err := kind.isSuspended(place, name, true); err != nil {
			return err
		}
		if pods := place.pods(kind.pods(name)); len(pods) > 0 {
			return fmt.Errorf("it has %d pods, %s among them", len(pods), pods[0].Name)
		}
		workload, err := kind.workload(place, name)
		if err != nil {
			return err
		}
		reserved := condition(workload, "QuotaReserved")
		if reserved.Status != metav1.ConditionFalse {
			return fmt.Errorf("QuotaReserved of its Workload is %q: %s", reserved.Status, reserved.Message)
		}
		if said := reserved.Message + " " + condition(workload, "Evicted").Reason; !strings.Contains(said, why) {
			return fmt.Errorf("Kueue says %q, want %q", said, why)
		}
		return kind.says(place, name, stateWaiting)
	}
}

func (kind jobKind) isSuspended(place *place, name string, want bool) error {
	object, err := place.find(kind.queued, name)
	if err != nil {
		return err
	}
	if suspended, _, _ := unstructured.NestedBool(object.Object, kind.suspend...); suspended != want {
		return fmt.Errorf("suspend of %s %s is %t, want %t", kind.queued.Kind, name, suspended, want)
	}
	return nil
}

// finishes ends well, which Kueue notices.
func (kind jobKind) finishes(t *testing.T) {
	place := newPlace(t)
	place.createQueue(jobPods)
	kind.submit(place, jobShape{name: "job", runFor: "2s"})
	place.eventually("the job ends", func() error {
		workload, err := kind.workload(place, "job")
		if err != nil {
			return err
		}
		if finished := condition(workload, "Finished"); finished.Status != metav1.ConditionTrue || finished.Reason != "Succeeded" {
			return fmt.Errorf("its Workload is not finished: %q %q", finished.Reason, finished.Message)
		}
		return kind.says(place, "job", stateFinished)
	})
	kind.submit(place, jobShape{name: "next"})
	place.eventually("the next job runs", kind.runs(place, "next"))
}

// waitsForQuota has room for one job.
func (kind jobKind) waitsForQuota(t *testing.T) {
	place := newPlace(t)
	place.createQueue(jobPods + 1)
	kind.submit(place, jobShape{name: "first"})
	place.eventually("the first job runs", kind.runs(place, "first"))
	kind.submit(place, jobShape{name: "second"})
	place.eventually("the second job waits", kind.waits(place, "second", "insufficient unused quota"))
	place.stays("the second job waits", patience, kind.waits(place, "second", "insufficient unused quota"))
	place.delete(kind.kind, "first")
	place.eventually("the second job runs", kind.runs(place, "second"))
}

// stopsAndResumes is sent back to the queue by somebody, and let in again.
func (kind jobKind) stopsAndResumes(t *testing.T) {
	ways := map[string]struct {
		stop, resume func(place *place)
		why          string
	}{
		"its Workload is deactivated": {
			stop:   func(place *place) { kind.patchWorkload(place, "job", `{"spec":{"active":false}}`) },
			resume: func(place *place) { kind.patchWorkload(place, "job", `{"spec":{"active":true}}`) },
			why:    "Deactivated",
		},
		"its ClusterQueue is drained": {
			stop: func(place *place) {
				place.patch(clusterQueueKind, place.namespace, `{"spec":{"stopPolicy":"HoldAndDrain"}}`)
			},
			resume: func(place *place) { place.patch(clusterQueueKind, place.namespace, `{"spec":{"stopPolicy":"None"}}`) },
			why:    "ClusterQueueStopped",
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			place := newPlace(t)
			place.createQueue(jobPods)
			kind.submit(place, jobShape{name: "job"})
			place.eventually("the job runs", kind.runs(place, "job"))
			way.stop(place)
			place.eventually("the job waits", kind.waits(place, "job", way.why))
			place.stays("the job waits", patience, kind.waits(place, "job", way.why))
			way.resume(place)
			place.eventually("the job runs again", kind.runs(place, "job"))
		})
	}
}

func (kind jobKind) patchWorkload(place *place, name, patch string) {
	place.Helper()
	workload, err := kind.workload(place, name)
	if err != nil {
		place.Fatal(err)
	}
	place.patch(workloadKind, workload.GetName(), patch)
}

// givesWay to a job of higher priority, and goes on when that has gone.
func (kind jobKind) givesWay(t *testing.T) {
	place := newPlace(t)
	place.createQueue(jobPods)
	place.create(fmt.Sprintf(`
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: %[1]s-low}, value: 10}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: %[1]s-high}, value: 100}
`, place.namespace))
	kind.submit(place, jobShape{name: "low", priority: place.namespace + "-low"})
	place.eventually("the first job runs", kind.runs(place, "low"))
	kind.submit(place, jobShape{name: "high", priority: place.namespace + "-high"})
	place.eventually("the more important job runs", kind.runs(place, "high"))
	place.eventually("the first job waits", kind.waits(place, "low", "Preempted"))
	place.delete(kind.kind, "high")
	place.eventually("the first job runs again", kind.runs(place, "low"))
}
