// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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

// nextAttempt says when Kueue tries to admit an evicted Workload again, if it waits.
func nextAttempt(workload *unstructured.Unstructured) string {
	if at, _, _ := unstructured.NestedString(workload.Object, "status", "requeueState", "requeueAt"); at != "" {
		return "Kueue does not admit it before " + at
	}
	return ""
}

// position says where a Workload is in its LocalQueue, and which jobs have quota. Kueue
// orders by priority, then by age; Workloads of other namespaces may be in between.
func (facts *Facts) position(own *unstructured.Unstructured) string {
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
	at := slices.IndexFunc(waiting, func(workload *unstructured.Unstructured) bool { return workload.GetName() == own.GetName() })
	if at < 0 {
		return ""
	}
	text := fmt.Sprintf("It is number %d of %d in this queue", at+1, len(waiting))
	if queue, _, _ := unstructured.NestedString(facts.Queue.Value.Object, "spec", "clusterQueue"); queue != "" {
		text += ", which uses ClusterQueue " + queue
	}
	if len(admitted) > 0 {
		text += "; jobs of this queue that have quota: " + jobNames(admitted)
	}
	return text
}

func priorityOf(workload *unstructured.Unstructured) int64 {
	priority, _, _ := unstructured.NestedInt64(workload.Object, "spec", "priority")
	return priority
}

// jobNames lists the jobs of Workloads, sorted.
func jobNames(workloads []*unstructured.Unstructured) string {
	var names []string
	for _, workload := range workloads {
		name := workload.GetName()
		if owners := workload.GetOwnerReferences(); len(owners) > 0 {
			name = owners[0].Name
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}
