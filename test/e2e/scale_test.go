// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
)

// wholeNode is a worker that leaves no GPU of its node to another.
var wholeNode = corev1.ResourceList{
	"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi"), "nvidia.com/gpu": resource.MustParse(fmt.Sprint(simulatedGPUs)),
}

// The largest jobs that the limits allow. They are placed as a whole or not at
// all: with one node too few no pod gets a place, although all but one would fit.
func TestTheLargestJobs(t *testing.T) {
	const run = 2 * time.Second
	countOperatorWrites(t)
	for _, largest := range []struct {
		name    string
		workers int32
		object  client.Object
	}{
		{"TrainJob of 64 workers", 64, simulatedTrainJob("train", 64, run, wholeNode)},
		{"MPIJob of 100 workers", 100, simulatedMPIJob("train", 100, run, wholeNode)},
	} {
		t.Run(largest.name, func(t *testing.T) {
			if largest.workers < 100 && !isThorough() {
				t.Skip("the larger one shows the same: make test-all runs it")
			}
			simulateNodes(t, int(largest.workers)-1)
			crowd := newCrowd(t, run)
			byAll, byOperator := jobWrites(t), operatorWrites(t)
			begin := time.Now()
			job := submitTo(t, crowd.client, crowd.namespace, largest.object)
			wantNoPlaces(job, int(largest.workers)+1)
			waited := time.Since(begin)

			changeNodes(t, int(largest.workers))
			enough := time.Now()
			ended := job.succeeds()
			took := time.Since(enough)
			wantAllWorkers(t, ended, largest.workers)
			t.Logf("%s until it was clear that it does not fit, %s from enough nodes to Succeeded", waited.Round(time.Millisecond), took.Round(time.Millisecond))
			untilAtRest(t, jobWrites)
			byOperator = operatorWrites(t).since(byOperator)
			t.Logf("%d writes by the operator: %s", byOperator.total(), byOperator)
			t.Logf("writes by all: %s", jobWrites(t).since(byAll))
		})
	}
}

// wantNoPlaces waits until a job has all its pods and the scheduler has looked at
// them, and fails if one of them has got a node by then or soon after.
func wantNoPlaces(job *theJob, pods int) {
	job.t.Helper()
	const watched = 3 * time.Second
	var since time.Time
	job.until("its pods wait for places", 3*time.Minute, func(training.Progress) bool {
		there := job.pods("")
		looked := len(there) == pods
		for _, pod := range there {
			if pod.Spec.NodeName != "" {
				job.t.Fatalf("pod %s has a place, although there is none for the others\n%s", pod.Name, job.describe())
			}
			looked = looked && pod.Status.Phase == corev1.PodPending && isRefused(&pod)
		}
		if !looked {
			since = time.Time{}
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) > watched
	})
}

// isRefused tells whether the scheduler has found no place for a pod.
func isRefused(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition.Status == corev1.ConditionFalse
		}
	}
	return false
}

// wantAllWorkers fails unless the status has every worker, each on a node of its
// own.
func wantAllWorkers(t *testing.T, ended training.Progress, workers int32) {
	t.Helper()
	if want := fmt.Sprintf("%d/%d", workers, workers); ended.ReadyWorkers != want {
		t.Errorf("%s workers were ready, want %s", ended.ReadyWorkers, want)
	}
	if len(ended.WorkerPodStatuses) != int(workers) || ended.LauncherPodStatus == nil {
		t.Fatalf("the status has %d workers and the launcher %v", len(ended.WorkerPodStatuses), ended.LauncherPodStatus)
	}
	nodes := map[string]int32{}
	for i, status := range ended.WorkerPodStatuses {
		if status.Index != int32(i) || status.Name == "" || status.Node == "" {
			t.Errorf("worker %d is %+v", i, status)
		}
		if other, taken := nodes[status.Node]; taken {
			t.Errorf("workers %d and %d are both on %s", other, i, status.Node)
		}
		nodes[status.Node] = status.Index
	}
}
