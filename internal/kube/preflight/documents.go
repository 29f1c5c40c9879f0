package preflight

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// Diagnosis is all that is told of one job.
type Diagnosis struct {
	Kind           string                 `json:"kind"`
	Namespace      string                 `json:"namespace"`
	Name           string                 `json:"name"`
	State          string                 `json:"state"`
	Workers        string                 `json:"workers"`
	Explanation    string                 `json:"explanation"`
	FailureReason  training.FailureReason `json:"failureReason,omitempty"`
	FailureMessage string                 `json:"failureMessage,omitempty"`
	// FailedProcess is the process that failed, and what it wrote last.
	FailedProcess *training.FailedProcess `json:"failedProcess,omitempty"`
	// Conditions are what the operator answers, one question at a time.
	Conditions []Answered `json:"conditions"`
	// Hindered: something keeps the job from going on.
	Hindered bool      `json:"hindered"`
	Findings []Finding `json:"findings"`
}

// Answered is a question about a job, and the operator's answer.
type Answered struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// LastTransitionTime is when the answer last changed.
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// ObservedGeneration is the generation of the job that the answer is about; conditions
	// of MPIJobs have none.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// DiagnosisOf looks at a job that is there.
func DiagnosisOf(ctx context.Context, gatherer *Gatherer, seen *jobview.View) *Diagnosis {
	found := &Diagnosis{
		Kind: string(seen.Kind.Kind), Namespace: seen.GetNamespace(), Name: seen.GetName(), State: seen.State(), Workers: seen.Workers(), Explanation: seen.Explanation(),
		FailureReason: seen.FailureReason, FailureMessage: seen.FailureMessage, FailedProcess: seen.FailedProcess, Conditions: answers(seen.Conditions), Findings: Diagnose(gatherer.OfJob(ctx, seen.Object)),
	}
	found.Hindered = slices.ContainsFunc(found.Findings, func(finding Finding) bool { return finding.Rank.Hinders() })
	if found.Findings == nil {
		found.Findings = []Finding{}
	}
	return found
}

func answers(conditions []metav1.Condition) []Answered {
	told := []Answered{}
	for _, condition := range conditions {
		answer := Answered{
			Type: condition.Type, Status: string(condition.Status), Reason: condition.Reason, Message: condition.Message, ObservedGeneration: condition.ObservedGeneration,
		}
		if !condition.LastTransitionTime.IsZero() {
			answer.LastTransitionTime = &condition.LastTransitionTime
		}
		told = append(told, answer)
	}
	return told
}

// Prechecked is all that is told of a job before it is submitted, or of a place for
// jobs.
type Prechecked struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name,omitempty"`
	Report
}

// PrecheckedBy is what the checks say to facts.
func PrecheckedBy(facts *Facts) *Prechecked {
	return &Prechecked{Kind: string(facts.Kind), Namespace: facts.Namespace, Name: facts.Name, Report: Preflight(facts)}
}
