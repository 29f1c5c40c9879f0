// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trireme-mpi/trireme/api/training"
)

// queue reports why Kueue does not admit the job.
func queue(facts *Facts) []Finding {
	if facts.hasSucceeded() || facts.hasFailed() || facts.Job == nil || facts.Job.Queue == "" || facts.reached(training.StepScheduled) {
		return nil
	}
	name := facts.Job.Queue
	finding := Finding{Rank: Certain, Object: "localqueue/" + name, Fix: fmt.Sprintf("kubectl get localqueue -n %s", facts.Namespace), Documentation: pageJobs}
	switch {
	case facts.Queue.Unknown != "":
		return unknown("Queue "+name, facts.Queue.Unknown)
	case !facts.KueueServed && facts.heldBack():
		finding.Title, finding.Cause = "Kueue is not installed", "The job is suspended and waits in a queue that no controller manages."
		finding.waits = &Waiting{Cause: WaitQueueUnmanaged}
		finding.Fix = "Ask a cluster administrator to install Kueue, or remove the label " + training.LabelQueue + " from the job and resume it"
	case !facts.KueueServed:
		finding.Rank, finding.Fix = Note, ""
		finding.Title, finding.Cause = "Kueue is not installed", "The job's label "+training.LabelQueue+" has no effect."
	case facts.Queue.Value == nil:
		finding.Title, finding.Cause = "Queue "+name+" is missing", "Kueue does not admit a job until its LocalQueue exists."
		finding.waits = &Waiting{Cause: WaitQueueMissing, Queue: facts.queueState(nil)}
	case falseCondition(facts.Queue.Value, "Active") != "":
		finding.Title, finding.Cause = "Queue "+name+" is not active", falseCondition(facts.Queue.Value, "Active")
		finding.Fix = fmt.Sprintf("kubectl describe localqueue %s -n %s", name, facts.Namespace)
		finding.waits = &Waiting{Cause: WaitQueueInactive, Queue: facts.queueState(nil), Since: transition(facts.Queue.Value, "Active")}
	default:
		return facts.workload()
	}
	return []Finding{finding}
}

// heldBack reports whether the job has no pods because of its queue.
func (facts *Facts) heldBack() bool { return facts.Job.Suspended || facts.Previous.Queued }

// workload reports the state of the job's Workload.
func (facts *Facts) workload() []Finding {
	switch workload := facts.Workload.Value; {
	case facts.Workload.Unknown != "":
		return unknown("Kueue's Workload of the job", facts.Workload.Unknown)
	case workload == nil && facts.heldBack():
		return []Finding{{
			Rank: Likely, Title: "The job is waiting in queue " + facts.Job.Queue, Cause: "Kueue has created no Workload for it: it does not manage jobs of this kind, or has not processed the job yet.",
			Object: "localqueue/" + facts.Job.Queue, Fix: fmt.Sprintf("kubectl describe localqueue %s -n %s", facts.Job.Queue, facts.Namespace), Documentation: pageJobs,
			waits: &Waiting{Cause: WaitQueueUnmanaged, Queue: facts.queueState(nil)},
		}}
	case workload == nil:
		return nil
	case isInactive(workload):
		return []Finding{{
			Rank: Certain, Title: "Kueue's Workload of the job is deactivated", Cause: sentences(eviction(workload), "Kueue does not admit it until it is active again"),
			Object: "workload/" + workload.GetName(), Documentation: pageJobs,
			Fix:   fmt.Sprintf(`kubectl patch workload %s -n %s --type merge -p '{"spec":{"active":true}}'`, workload.GetName(), facts.Namespace),
			waits: &Waiting{Cause: WaitDeactivated, Queue: facts.queueState(workload), Since: transition(workload, "Evicted")},
		}}
	default:
		for _, conditionType := range []string{"QuotaReserved", "Admitted"} {
			waits := falseCondition(workload, conditionType)
			if conditionType == "QuotaReserved" && conditionOf(workload, conditionType) == nil && facts.heldBack() {
				// Behind others, a Workload has no such condition at all.
				waits = "Kueue has not tried to admit it yet"
			}
			if waits != "" {
				return []Finding{{
					Rank: Certain, Title: "The job is waiting in queue " + facts.Job.Queue, Object: "workload/" + workload.GetName(),
					Cause:         sentences(waits, eviction(workload), facts.queueState(workload).text(), nextAttemptText(workload)),
					Fix:           fmt.Sprintf("Wait for other jobs to finish, or request less; see kubectl describe workload %s -n %s", workload.GetName(), facts.Namespace),
					Documentation: pageJobs, waits: facts.queueWait(workload, conditionType),
				}}
			}
		}
		return nil
	}
}

// falseCondition returns the reason and message of a condition that is not true; empty
// if it is true or missing.
func falseCondition(object *unstructured.Unstructured, conditionType string) string {
	if condition := conditionOf(object, conditionType); condition != nil && condition["status"] != "True" {
		return strings.TrimSpace(fmt.Sprintf("%v: %v", condition["reason"], condition["message"]))
	}
	return ""
}

// conditionOf returns a condition of an object, or nil.
func conditionOf(object *unstructured.Unstructured, conditionType string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		if condition, _ := item.(map[string]any); condition["type"] == conditionType {
			return condition
		}
	}
	return nil
}

// podGroup reports the state of the job's gang, with the messages of its scheduler.
func podGroup(facts *Facts) (findings []Finding) {
	if facts.hasSucceeded() || facts.hasFailed() || facts.reached(training.StepScheduled) || len(facts.Pods.Value) == 0 {
		return nil
	}
	if facts.PodGroups.Unknown != "" {
		return unknown("PodGroup", facts.PodGroups.Unknown)
	}
	for i := range facts.PodGroups.Value {
		group := &facts.PodGroups.Value[i]
		phase, _, _ := unstructured.NestedString(group.Object, "status", "phase")
		state := phase
		for _, conditionType := range []string{"Scheduled", "PodGroupScheduled", "PodGroupInitiallyScheduled"} {
			if waits := falseCondition(group, conditionType); waits != "" {
				state = strings.TrimPrefix(state+"; "+waits, "; ")
			}
		}
		if state == "" || phase == "Running" || phase == "Scheduled" || phase == "Finished" {
			continue
		}
		findings = append(findings, Finding{
			Rank: Possible, Title: "The gang is waiting until all of its pods can be scheduled", Cause: state, Object: "podgroup/" + group.GetName(),
			Fix:           fmt.Sprintf("kubectl describe podgroups.%s %s -n %s", group.GroupVersionKind().Group, group.GetName(), facts.Namespace),
			Documentation: pageJobs,
		})
	}
	return findings
}
