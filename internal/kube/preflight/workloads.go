// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxNames is how many names of other jobs a message contains.
const maxNames = 3

// sentences joins texts that are not empty.
func sentences(texts ...string) string {
	var parts []string
	for _, text := range texts {
		if text = strings.TrimRight(strings.TrimSpace(text), "."); text != "" {
			parts = append(parts, text+".")
		}
	}
	return strings.Join(parts, " ")
}

func isTrueCondition(workload *unstructured.Unstructured, conditionType string) bool {
	return conditionOf(workload, conditionType)["status"] == "True"
}

// isInactive reports whether somebody, or Kueue after too many attempts, has deactivated a
// Workload.
func isInactive(workload *unstructured.Unstructured) bool {
	active, found, _ := unstructured.NestedBool(workload.Object, "spec", "active")
	return found && !active
}

// eviction says why Kueue has taken the quota of a Workload back; empty if it has not.
func eviction(workload *unstructured.Unstructured) string {
	if !isTrueCondition(workload, "Evicted") {
		return ""
	}
	evicted := conditionOf(workload, "Evicted")
	return fmt.Sprintf("It was evicted: %v: %v", evicted["reason"], evicted["message"])
}

// nextAttempt is when Kueue tries to admit an evicted Workload again, if it waits.
func nextAttempt(workload *unstructured.Unstructured) *metav1.Time {
	at, _, _ := unstructured.NestedString(workload.Object, "status", "requeueState", "requeueAt")
	return parsedTime(at)
}

func nextAttemptText(workload *unstructured.Unstructured) string {
	if at := nextAttempt(workload); at != nil {
		return "Kueue does not admit it before " + at.UTC().Format(time.RFC3339)
	}
	return ""
}

func parsedTime(text string) *metav1.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil
	}
	return &metav1.Time{Time: at}
}

// transition is when a condition of an object last changed, if it says so.
func transition(object *unstructured.Unstructured, conditionType string) *metav1.Time {
	at, _ := conditionOf(object, conditionType)["lastTransitionTime"].(string)
	return parsedTime(at)
}

// queueWait is the wait of a Workload whose condition is not true yet.
func (facts *Facts) queueWait(workload *unstructured.Unstructured, conditionType string) *Waiting {
	answer := &Waiting{Cause: WaitQueue, Queue: facts.queueState(workload), Since: transition(workload, conditionType), MayStart: nextAttempt(workload)}
	if answer.Since == nil {
		answer.Since = new(workload.GetCreationTimestamp())
	}
	if message, _ := conditionOf(workload, conditionType)["message"].(string); message != "" {
		answer.Queue.Lacks = message
	}
	switch {
	case !isTrueCondition(workload, "Evicted"):
	case isTrueCondition(workload, "Preempted"), conditionOf(workload, "Evicted")["reason"] == "Preempted":
		answer.Cause = WaitPreempted
	default:
		answer.Cause = WaitEvicted
	}
	return answer
}

// queueState says where a Workload is in its LocalQueue, and which jobs have quota. Kueue
// orders by priority, then by age; Workloads of other namespaces may be in between.
func (facts *Facts) queueState(own *unstructured.Unstructured) *QueueState {
	state := &QueueState{Name: facts.Job.Queue}
	if queue := facts.Queue.Value; queue != nil {
		state.ClusterQueue, _, _ = unstructured.NestedString(queue.Object, "spec", "clusterQueue")
	}
	var waiting, admitted []*unstructured.Unstructured
	for i := range facts.Workloads {
		switch workload := &facts.Workloads[i]; {
		case isTrueCondition(workload, "Finished") || isInactive(workload):
		case isTrueCondition(workload, "QuotaReserved"):
			admitted = append(admitted, workload)
		default:
			waiting = append(waiting, workload)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *unstructured.Unstructured) int {
		created, other := a.GetCreationTimestamp(), b.GetCreationTimestamp()
		return cmp.Or(cmp.Compare(priorityOf(b), priorityOf(a)), created.Compare(other.Time), strings.Compare(a.GetName(), b.GetName()))
	})
	state.Admitted = jobNames(admitted)
	slices.Sort(state.Admitted)
	at := slices.IndexFunc(waiting, func(workload *unstructured.Unstructured) bool {
		return own != nil && workload.GetName() == own.GetName()
	})
	if at >= 0 {
		state.Position, state.Length, state.Ahead = at+1, len(waiting), jobNames(waiting[:at])
	}
	return state
}

// text says the same in a sentence; empty if the position is not known.
func (s *QueueState) text() string {
	if s.Position == 0 {
		return ""
	}
	text := fmt.Sprintf("It is number %d of %d in this queue", s.Position, s.Length)
	if s.ClusterQueue != "" {
		text += ", which uses ClusterQueue " + s.ClusterQueue
	}
	if len(s.Admitted) > 0 {
		text += "; jobs of this queue that have quota: " + shortList(s.Admitted)
	}
	return text
}

func priorityOf(workload *unstructured.Unstructured) int64 {
	priority, _, _ := unstructured.NestedInt64(workload.Object, "spec", "priority")
	return priority
}

// jobNames are the jobs of Workloads.
func jobNames(workloads []*unstructured.Unstructured) (names []string) {
	for _, workload := range workloads {
		name := workload.GetName()
		if owners := workload.GetOwnerReferences(); len(owners) > 0 {
			name = owners[0].Name
		}
		names = append(names, name)
	}
	return names
}

// shortList joins names, at most maxNames of them.
func shortList(names []string) string {
	if len(names) > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}
