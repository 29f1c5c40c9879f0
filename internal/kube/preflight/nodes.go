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

// fit is how the nodes of a cluster suit the workers of a job.
type fit struct {
	nodes int
	// taking is how many nodes would take one worker, room how many workers have
	// room on all of them together.
	taking, room int
	// reasons are why the other nodes would not take a worker, with their numbers.
	reasons map[nodes.Reason]int
	// ever: some node would take a worker if it were empty.
	ever bool
}

// nodesThatFit counts the nodes that would take a worker.
func nodesThatFit(facts *Facts) []Finding {
	if facts.hasSucceeded() || facts.reached(training.StepScheduled) {
		return nil
	}
	worker, wanted := facts.workersToPlace()
	switch {
	case worker == nil || wanted == 0:
		return nil
	case facts.Nodes.Unknown != "":
		return unknown("Nodes that fit", facts.Nodes.Unknown)
	}
	found := facts.fitOf(worker, wanted)
	if found.room >= wanted {
		return nil
	}
	return []Finding{facts.tooFewNodes(worker, wanted, found)}
}

// workersToPlace are the workers without a node, by example, and their number. Where
// a job has no workers, it is the launcher.
func (facts *Facts) workersToPlace() (*corev1.Pod, int) {
	role := training.RoleWorker
	if facts.Job != nil && facts.Job.Worker.Replicas == 0 {
		role = training.RoleLauncher
	}
	there, unplaced := active(facts.podsOf(role)), 0
	var example *corev1.Pod
	for _, pod := range there {
		if pod.Spec.NodeName == "" {
			unplaced++
			example = cmp.Or(example, pod)
		}
	}
	if facts.Job == nil {
		return example, unplaced
	}
	unplaced += max(int(roleOf(facts.Job, role).Replicas)-len(there), 0)
	return cmp.Or(example, facts.planned(role)), unplaced
}

func (facts *Facts) fitOf(worker *corev1.Pod, wanted int) fit {
	found := fit{nodes: len(facts.Nodes.Value), reasons: map[nodes.Reason]int{}}
	for i := range facts.Nodes.Value {
		node := &facts.Nodes.Value[i]
		used := map[string]corev1.ResourceList{node.Name: maps.Clone(facts.Used.Value[node.Name])}
		found.ever = found.ever || nodes.Takes(node, worker, nil)
		if reason := nodes.Check(node, worker, used[node.Name]); reason != (nodes.Reason{}) {
			found.reasons[reason]++
			continue
		}
		found.taking++
		placed := &corev1.Pod{Spec: *worker.Spec.DeepCopy()}
		placed.Spec.NodeName = node.Name
		for here := 0; here < wanted && nodes.Takes(node, worker, used[node.Name]); here++ {
			found.room++
			nodes.Use(used, placed)
		}
	}
	return found
}

func (facts *Facts) tooFewNodes(worker *corev1.Pod, wanted int, found fit) Finding {
	rank := Likely
	switch {
	case facts.Autoscaled:
		rank = Possible
	case !found.ever:
		rank = Certain
	}
	finding := Finding{
		Rank: facts.rank(rank, training.StepScheduled, training.FailureGangSchedulingTimeout), Title: "Too few nodes would take the workers",
		Cause: fmt.Sprintf("%d of %s would take a worker, which asks for %s; there is room for %d of %d workers.",
			found.taking, count(found.nodes, "node"), asked(worker), min(found.room, wanted), wanted),
		Object: "nodes", Documentation: pageFailures,
	}
	if text := found.reasonText(); text != "" {
		finding.Cause += " What hinders on the others: " + text + "."
	}
	if facts.Autoscaled {
		finding.Cause += " The cluster may make nodes for them."
	}
	if facts.Used.Unknown != "" {
		finding.Cause += " How full they are is not known: " + facts.Used.Unknown + "."
	}
	finding.Fix = facts.nodesFix(found)
	return finding
}

func asked(pod *corev1.Pod) string {
	requests := job.Requests(&pod.Spec)
	var words []string
	for _, name := range job.ResourceNames(requests) {
		if quantity := requests[name]; !quantity.IsZero() {
			words = append(words, fmt.Sprintf("%s %s", quantity.String(), name))
		}
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// sortedReasons are the reasons, the most frequent first.
func (found *fit) sortedReasons() []nodes.Reason {
	return slices.SortedFunc(maps.Keys(found.reasons), func(a, b nodes.Reason) int {
		return cmp.Or(cmp.Compare(found.reasons[b], found.reasons[a]), cmp.Compare(a.String(), b.String()))
	})
}

func (found *fit) reasonText() string {
	var parts []string
	for _, reason := range found.sortedReasons() {
		parts = append(parts, fmt.Sprintf("%s (%s)", reason, count(found.reasons[reason], "node")))
	}
	return strings.Join(parts, "; ")
}

// nodesFix is what to do about the most frequent reason.
func (facts *Facts) nodesFix(found fit) string {
	var first nodes.Reason
	if reasons := found.sortedReasons(); len(reasons) > 0 {
		first = reasons[0]
	}
	switch first.Kind {
	case nodes.Cordoned:
		return "kubectl uncordon NODE; see kubectl get nodes"
	case nodes.TaintNotTolerated:
		return "Add a toleration for the taint to the pods of the job or of its runtime"
	case nodes.SelectorMismatch, nodes.AffinityMismatch:
		return "Correct the nodeSelector of the job or of its runtime; see kubectl get nodes --show-labels"
	}
	if !found.ever {
		return "Let a worker ask for no more than one node has; see kubectl describe nodes"
	}
	return "Ask for fewer or smaller workers, or wait for other jobs to end; see kubectl describe nodes"
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
			Rank: rank, Title: "No node has " + string(name), Cause: "The workers ask for it, and wait until a node has it.", Object: "nodes",
			Fix: "Ask for a GPU that a node has; see kubectl describe nodes", Documentation: pageJobs,
		})
	}
	return findings
}
