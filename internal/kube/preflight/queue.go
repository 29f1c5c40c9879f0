package preflight

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trireme-mpi/trireme/api/training"
)

// queue is how the job stands with Kueue.
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
		finding.Title, finding.Cause = "There is no Kueue", "The job is suspended and waits in a queue that nobody looks after."
		finding.Fix = "Have Kueue installed, or take the label " + training.LabelQueue + " off the job and resume it"
	case !facts.KueueServed:
		finding.Rank, finding.Fix = Note, ""
		finding.Title, finding.Cause = "There is no Kueue", "The job's label "+training.LabelQueue+" has no effect."
	case facts.Queue.Value == nil:
		finding.Title, finding.Cause = "Queue "+name+" is missing", "Kueue never admits a job whose LocalQueue is not there."
	case isFalse(facts.Queue.Value, "Active") != "":
		finding.Title, finding.Cause = "Queue "+name+" is not active", isFalse(facts.Queue.Value, "Active")
		finding.Fix = fmt.Sprintf("kubectl describe localqueue %s -n %s", name, facts.Namespace)
	default:
		return facts.workload()
	}
	return []Finding{finding}
}

// heldBack: the job has no pods, because of its queue.
func (facts *Facts) heldBack() bool { return facts.Job.Suspended || facts.Previous.Queued }

// workload is what Kueue says of the job itself.
func (facts *Facts) workload() []Finding {
	switch workload := facts.Workload.Value; {
	case facts.Workload.Unknown != "":
		return unknown("Kueue's Workload of the job", facts.Workload.Unknown)
	case workload == nil && facts.heldBack():
		return []Finding{{
			Rank: Likely, Title: "The job waits in queue " + facts.Job.Queue, Cause: "Kueue has made no Workload of it: it does not look after jobs of this kind, or has not seen it yet.",
			Object: "localqueue/" + facts.Job.Queue, Fix: fmt.Sprintf("kubectl describe localqueue %s -n %s", facts.Job.Queue, facts.Namespace), Documentation: pageJobs,
		}}
	case workload == nil:
		return nil
	default:
		for _, question := range []string{"QuotaReserved", "Admitted"} {
			if waits := isFalse(workload, question); waits != "" {
				return []Finding{{
					Rank: Certain, Title: "The job waits in queue " + facts.Job.Queue, Cause: waits, Object: "workload/" + workload.GetName(),
					Fix:           fmt.Sprintf("Wait for others to end, or ask for less; see kubectl describe workload %s -n %s", workload.GetName(), facts.Namespace),
					Documentation: pageJobs,
				}}
			}
		}
		return nil
	}
}

// isFalse is what a condition says that is not true; empty if it is true or not
// there.
func isFalse(object *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		if condition["type"] == kind && condition["status"] != "True" {
			return strings.TrimSpace(fmt.Sprintf("%v: %v", condition["reason"], condition["message"]))
		}
	}
	return ""
}

// podGroup is how far the gang of the job is, in the words of its scheduler.
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
		words := phase
		for _, question := range []string{"Scheduled", "PodGroupScheduled", "PodGroupInitiallyScheduled"} {
			if waits := isFalse(group, question); waits != "" {
				words = strings.TrimPrefix(words+"; "+waits, "; ")
			}
		}
		if words == "" || phase == "Running" || phase == "Scheduled" || phase == "Finished" {
			continue
		}
		findings = append(findings, Finding{
			Rank: Possible, Title: "The gang waits until all of its pods have a place", Cause: words, Object: "podgroup/" + group.GetName(),
			Fix:           fmt.Sprintf("kubectl describe podgroups.%s %s -n %s", group.GroupVersionKind().Group, group.GetName(), facts.Namespace),
			Documentation: pageJobs,
		})
	}
	return findings
}
