// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	// manyWorkers on one node are worth a note. Fewer exchange little.
	manyWorkers = 4
	// mostSlots that every kind of job may have by default.
	mostSlots = 8
)

// sharedMemory notes that many workers of a running job share a node: ranks of one pod
// exchange messages through shared memory, ranks of several pods by TCP.
func sharedMemory(facts *Facts) []Finding {
	if facts.Job == nil || facts.Previous.Phase != training.PhaseRunning || !job.GPUs(job.Requests(&facts.Job.Worker.Template.Spec)).IsZero() {
		return nil
	}
	perNode, total, most := map[string]int{}, 0, ""
	for _, pod := range active(facts.podsOf(training.RoleWorker)) {
		if node := pod.Spec.NodeName; node != "" {
			perNode[node]++
			total++
			if most == "" || perNode[node] > perNode[most] {
				most = node
			}
		}
	}
	if perNode[most] < manyWorkers {
		return nil
	}
	workers, slots := fewerWorkers(facts.Kind, total, int(facts.Job.Slots), len(perNode))
	if workers >= total {
		return nil
	}
	return []Finding{{
		Rank: Note, Title: "Ranks on one node exchange messages by TCP",
		// The command line does not print the fix of a note.
		Cause: fmt.Sprintf("%s of %s run on node %s. Ranks of one pod use shared memory, which is faster: with %s of %s, more of them would.",
			count(perNode[most], "worker"), count(int(facts.Job.Slots), "slot"), most, count(workers, "worker"), count(slots, "slot")),
		Object: "nodes/" + most, Fix: fmt.Sprintf("Use %s of %s, with as many times the CPU and memory", count(workers, "worker"), count(slots, "slot")),
		Documentation: pageMPI,
	}}
}

// fewerWorkers is the smallest number of workers with the same number of ranks, at least
// one for each node, and the slots of each.
func fewerWorkers(kind job.Kind, workers, slots, nodes int) (fewer, more int) {
	ranks, least := workers*slots, nodes
	if kind == job.KindMPIJob {
		least = max(least, 2) // the operator's default minimum
	}
	for fewer = least; fewer < workers; fewer++ {
		if ranks%fewer == 0 && ranks/fewer <= mostSlots {
			return fewer, ranks / fewer
		}
	}
	return workers, slots
}
