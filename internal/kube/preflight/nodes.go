// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/nodes"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// fit is how many workers of a job can be scheduled on the nodes of a cluster.
type fit struct {
	nodes int
	// fitting is how many nodes fit at least one worker, workers how many workers fit on
	// all of them together.
	fitting, workers int
	// reasons are why the other nodes do not fit a worker, with the number of nodes.
	reasons map[nodes.Reason]int
	// fitsEmptyNode: a worker fits on some node if no other pod runs there.
	fitsEmptyNode bool
}

// nodesThatFit checks that the workers can be scheduled.
func nodesThatFit(facts *Facts) []Finding {
	if facts.hasSucceeded() || facts.reached(training.StepScheduled) {
		return nil
	}
	worker, wanted := facts.workersToSchedule()
	switch {
	case worker == nil || wanted == 0:
		return nil
	case facts.Nodes.Unknown != "":
		return unknown("Nodes that fit", facts.Nodes.Unknown)
	}
	result := facts.fitOf(worker, wanted)
	if result.workers >= wanted {
		return nil
	}
	return []Finding{facts.tooFewNodes(worker, wanted, result)}
}

// workersToSchedule returns an example of the workers without a node, and their number.
// For a job without workers, it is the launcher.
func (facts *Facts) workersToSchedule() (*corev1.Pod, int) {
	role := training.RoleWorker
	if facts.Job != nil && facts.Job.Worker.Replicas == 0 {
		role = training.RoleLauncher
	}
	existing, unscheduled := active(facts.podsOf(role)), 0
	var example *corev1.Pod
	for _, pod := range existing {
		if pod.Spec.NodeName == "" {
			unscheduled++
			example = cmp.Or(example, pod)
		}
	}
	if facts.Job == nil {
		return example, unscheduled
	}
	unscheduled += max(int(roleOf(facts.Job, role).Replicas)-len(existing), 0)
	return cmp.Or(example, facts.planned(role)), unscheduled
}

func (facts *Facts) fitOf(worker *corev1.Pod, wanted int) fit {
	result := fit{nodes: len(facts.Nodes.Value), reasons: map[nodes.Reason]int{}}
	for i := range facts.Nodes.Value {
		node := &facts.Nodes.Value[i]
		used := map[string]corev1.ResourceList{node.Name: maps.Clone(facts.Used.Value[node.Name])}
		result.fitsEmptyNode = result.fitsEmptyNode || nodes.Fits(node, worker, nil)
		if reason := nodes.Check(node, worker, used[node.Name]); reason != (nodes.Reason{}) {
			result.reasons[reason]++
			continue
		}
		result.fitting++
		scheduled := &corev1.Pod{Spec: *worker.Spec.DeepCopy()}
		scheduled.Spec.NodeName = node.Name
		for onNode := 0; onNode < wanted && nodes.Fits(node, worker, used[node.Name]); onNode++ {
			result.workers++
			nodes.Use(used, scheduled)
		}
	}
	return result
}

func (facts *Facts) tooFewNodes(worker *corev1.Pod, wanted int, result fit) Finding {
	rank := Likely
	switch {
	case facts.Autoscaled:
		rank = Possible
	case !result.fitsEmptyNode:
		rank = Certain
	}
	finding := Finding{
		Rank: facts.rank(rank, training.StepScheduled, training.FailureGangSchedulingTimeout), Title: "Too few nodes fit the workers",
		Cause: fmt.Sprintf("%d of %s can run a worker, which requests %s; %d of %d workers can be scheduled.",
			result.fitting, count(result.nodes, "node"), requestText(worker), min(result.workers, wanted), wanted),
		Object: "nodes", Documentation: pageFailures,
	}
	if text := result.reasonText(); text != "" {
		finding.Cause += " Other nodes: " + text + "."
	}
	if facts.Autoscaled {
		finding.Cause += " The cluster autoscaler may add nodes."
	}
	if facts.Used.Unknown != "" {
		finding.Cause += " The used resources of nodes are not known: " + facts.Used.Unknown + "."
	}
	finding.Fix = facts.nodesFix(result)
	return finding
}

func requestText(pod *corev1.Pod) string {
	requests := job.Requests(&pod.Spec)
	var parts []string
	for _, name := range job.ResourceNames(requests) {
		if quantity := requests[name]; !quantity.IsZero() {
			parts = append(parts, fmt.Sprintf("%s %s", quantity.String(), name))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// sortedReasons are the reasons, the most frequent first.
func (f *fit) sortedReasons() []nodes.Reason {
	return slices.SortedFunc(maps.Keys(f.reasons), func(a, b nodes.Reason) int {
		return cmp.Or(cmp.Compare(f.reasons[b], f.reasons[a]), cmp.Compare(a.String(), b.String()))
	})
}

func (f *fit) reasonText() string {
	var parts []string
	for _, reason := range f.sortedReasons() {
		parts = append(parts, fmt.Sprintf("%s (%s)", reason, count(f.reasons[reason], "node")))
	}
	return strings.Join(parts, "; ")
}

// nodesFix is what to do about the most frequent reason.
func (facts *Facts) nodesFix(result fit) string {
	var first nodes.Reason
	if reasons := result.sortedReasons(); len(reasons) > 0 {
		first = reasons[0]
	}
	switch first.Kind {
	case nodes.Cordoned:
		return "kubectl uncordon NODE; see kubectl get nodes"
	case nodes.TaintNotTolerated:
		return "Add a toleration for the taint to the pods of the job or its runtime"
	case nodes.SelectorMismatch, nodes.AffinityMismatch:
		return "Correct the nodeSelector of the job or its runtime; see kubectl get nodes --show-labels"
	}
	if !result.fitsEmptyNode {
		return "Request no more for a worker than one node has; see kubectl describe nodes"
	}
	return "Use fewer or smaller workers, or wait for other jobs to finish; see kubectl describe nodes"
}

// gpuTypes finds GPUs that no node has.
func gpuTypes(facts *Facts) (findings []Finding) {
	worker := facts.example(training.RoleWorker)
	if worker == nil || job.GPUs(job.Requests(&worker.Spec)).IsZero() {
		return nil
	}
	if facts.Nodes.Unknown != "" {
		return unknown("GPU type", facts.Nodes.Unknown)
	}
	rank := Certain
	if facts.Autoscaled {
		rank = Possible
	}
	anyNodeHas := func(name corev1.ResourceName) bool { return nodes.AnyHas(facts.Nodes.Value, name) }
	for _, name := range validation.MissingGPUs(job.Requests(&worker.Spec), anyNodeHas) {
		findings = append(findings, Finding{
			Rank: rank, Title: "No node has " + string(name), Cause: "The workers request it, and are not scheduled until a node has it.", Object: "nodes",
			Fix: "Request a GPU that a node has; see kubectl describe nodes", Documentation: pageJobs,
		})
	}
	return findings
}
