// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// Diagnosis is the result of diagnosing one job.
type Diagnosis struct {
	Kind           string                 `json:"kind"`
	Namespace      string                 `json:"namespace"`
	Name           string                 `json:"name"`
	State          string                 `json:"state"`
	Workers        string                 `json:"workers"`
	Explanation    string                 `json:"explanation"`
	FailureReason  training.FailureReason `json:"failureReason,omitempty"`
	FailureMessage string                 `json:"failureMessage,omitempty"`
	// FailedProcess is the process that failed, with the end of its output.
	FailedProcess *training.FailedProcess `json:"failedProcess,omitempty"`
	Conditions    []Answered              `json:"conditions"`
	// Waiting is what the job waits for first; nil if it does not wait.
	Waiting *Waiting `json:"waiting,omitempty"`
	// Hindered: a finding blocks the job.
	Hindered bool      `json:"hindered"`
	Findings []Finding `json:"findings"`
}

// Answered is a condition of a job.
type Answered struct {
	Type               string       `json:"type"`
	Status             string       `json:"status"`
	Reason             string       `json:"reason,omitempty"`
	Message            string       `json:"message,omitempty"`
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// ObservedGeneration is 0 for MPIJobs, whose conditions have none.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// DiagnosisOf diagnoses a job in the cluster.
func DiagnosisOf(ctx context.Context, gatherer *Gatherer, view *jobview.View) *Diagnosis {
	facts := gatherer.OfJob(ctx, view.Object)
	diagnosis := &Diagnosis{
		Kind: string(view.Kind.Kind), Namespace: view.GetNamespace(), Name: view.GetName(), State: view.State(), Workers: view.Workers(), Explanation: view.Explanation(),
		FailureReason: view.FailureReason, FailureMessage: view.FailureMessage, FailedProcess: view.FailedProcess, Conditions: conditionsOf(view.Conditions), Findings: Diagnose(facts),
	}
	diagnosis.Waiting = WaitingFor(facts, diagnosis.Findings)
	diagnosis.Hindered = slices.ContainsFunc(diagnosis.Findings, func(finding Finding) bool { return finding.Rank.Blocks() })
	if diagnosis.Findings == nil {
		diagnosis.Findings = []Finding{}
	}
	return diagnosis
}

func conditionsOf(conditions []metav1.Condition) []Answered {
	result := []Answered{}
	for _, condition := range conditions {
		converted := Answered{
			Type: condition.Type, Status: string(condition.Status), Reason: condition.Reason, Message: condition.Message, ObservedGeneration: condition.ObservedGeneration,
		}
		if !condition.LastTransitionTime.IsZero() {
			converted.LastTransitionTime = &condition.LastTransitionTime
		}
		result = append(result, converted)
	}
	return result
}

// PreflightReport is the result of checking a job before it is submitted, or a namespace.
type PreflightReport struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name,omitempty"`
	Report
}

// NewPreflightReport runs the checks on facts.
func NewPreflightReport(facts *Facts) *PreflightReport {
	return &PreflightReport{Kind: string(facts.Kind), Namespace: facts.Namespace, Name: facts.Name, Report: Preflight(facts)}
}
