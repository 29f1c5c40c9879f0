// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// runsOn is a running job with so many workers on each node.
func runsOn(slots int32, workers ...int) func(*Facts) {
	return func(facts *Facts) {
		facts.Previous.Phase = training.PhaseRunning
		model := *facts.Job
		model.Slots = slots
		facts.Job, facts.Pods.Value = &model, nil
		for node, number := range workers {
			for i := range number {
				pod := podOf(&model, training.RoleWorker, fmt.Sprintf("job-worker-%d-%d", node, i))
				pod.Spec.NodeName, pod.Status.Phase = fmt.Sprintf("node-%d", node), corev1.PodRunning
				facts.Pods.Value = append(facts.Pods.Value, pod)
			}
		}
	}
}

func TestSharedMemory(t *testing.T) {
	note := []string{"note: Ranks on one node exchange messages by TCP"}
	table(t, sharedMemory, pending, map[string]tableCase{
		"a pending job":                    {},
		"two workers on a node":            {change: runsOn(2, 2)},
		"a worker on each node":            {change: runsOn(1, 1, 1, 1, 1, 1)},
		"twelve workers on a node":         {change: runsOn(1, 12), want: note, fix: "Use 2 workers of 6 slots, with as many times the CPU and memory"},
		"four workers on each node":        {change: runsOn(2, 4, 4), want: note, fix: "Use 2 workers of 8 slots"},
		"as many slots as there may be":    {change: runsOn(8, 4)},
		"more on one node than on another": {change: runsOn(1, 5, 1), want: note, fix: "Use 2 workers of 3 slots"},
		"GPUs":                             {change: all(runsOn(1, 8), workersAsk("nvidia.com/gpu", "1"))},
		"finished pods": {change: all(runsOn(1, 8), func(facts *Facts) {
			for i := range facts.Pods.Value {
				facts.Pods.Value[i].Status.Phase = corev1.PodSucceeded
			}
		})},
	})
}

// A TrainJob may have one worker, an MPIJob needs two.
func TestFewerWorkers(t *testing.T) {
	for kind, want := range map[job.Kind]string{job.KindTrainJob: "1 of 8", job.KindMPIJob: "2 of 4"} {
		if workers, slots := fewerWorkers(kind, 8, 1, 1); fmt.Sprintf("%d of %d", workers, slots) != want {
			t.Errorf("%s: %d of %d, want %s", kind, workers, slots, want)
		}
	}
}
