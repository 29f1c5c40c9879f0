// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

func TestStates(t *testing.T) {
	restart := &training.Restart{Count: 1, Reason: training.FailureWorker}
	suspended := []metav1.Condition{{Type: v2alpha1.ConditionSuspended, Status: metav1.ConditionTrue, Reason: "Suspended"}}
	queued := []metav1.Condition{{Type: v2alpha1.ConditionSuspended, Status: metav1.ConditionTrue, Reason: "Queued"}}
	tests := map[string]struct {
		status  v2alpha1.TrainJobStatus
		suspend bool
		deleted bool
		want    string
	}{
		"new":                      {want: "Submitted"},
		"pending":                  {status: v2alpha1.TrainJobStatus{Progress: training.Progress{Phase: training.PhasePending}}, want: "Pending"},
		"restarting":               {status: v2alpha1.TrainJobStatus{Progress: training.Progress{Phase: training.PhasePending, Restart: restart}}, want: "Restarting"},
		"running after a restart":  {status: v2alpha1.TrainJobStatus{Progress: training.Progress{Phase: training.PhaseRunning, Restart: restart}}, want: "Running"},
		"failed after a restart":   {status: v2alpha1.TrainJobStatus{Progress: training.Progress{Phase: training.PhaseFailed, Restart: restart}}, want: "Failed"},
		"suspended while it waits": {status: v2alpha1.TrainJobStatus{Progress: training.Progress{Phase: training.PhasePending, Restart: restart}, Conditions: suspended}, want: "Suspended"},
		"to be suspended":          {status: v2alpha1.TrainJobStatus{Progress: training.Progress{Phase: training.PhasePending, Restart: restart}}, suspend: true, want: "Suspended"},
		"queued after a restart":   {status: v2alpha1.TrainJobStatus{Progress: training.Progress{Phase: training.PhasePending, Restart: restart}, Conditions: queued}, want: "Queued"},
		"deleted":                  {status: v2alpha1.TrainJobStatus{Progress: training.Progress{Phase: training.PhasePending, Restart: restart}}, deleted: true, want: "Deleting"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			trainJob := &v2alpha1.TrainJob{Status: tc.status, Spec: v2alpha1.TrainJobSpec{Suspend: &tc.suspend}}
			if tc.deleted {
				trainJob.DeletionTimestamp = &metav1.Time{}
			}
			got := Of(trainJob).State()
			if got != tc.want || !slices.Contains(States, got) {
				t.Errorf("the state is %s, want %s, one of %v", got, tc.want, States)
			}
			if row := Of(trainJob).Row(); row.Status != tc.want {
				t.Errorf("a list shows %s, want %s", row.Status, tc.want)
			}
		})
	}
}

// mpi-operator writes conditions and no phase.
func TestJobsOfMPIOperator(t *testing.T) {
	condition := func(kind v2beta1.JobConditionType, status corev1.ConditionStatus) v2beta1.JobCondition {
		return v2beta1.JobCondition{Type: kind, Status: status, Message: "said " + string(kind)}
	}
	created, stopped := condition(v2beta1.JobCreated, "True"), condition(v2beta1.JobRunning, "False")
	for name, tc := range map[string]struct {
		conditions            []v2beta1.JobCondition
		suspend               bool
		want, wantExplanation string
	}{
		"created":   {conditions: []v2beta1.JobCondition{created}, want: "Pending", wantExplanation: "mpi-operator runs this job"},
		"running":   {conditions: []v2beta1.JobCondition{created, condition(v2beta1.JobRunning, "True")}, want: "Running", wantExplanation: "mpi-operator runs this job"},
		"suspended": {conditions: []v2beta1.JobCondition{created, condition(v2beta1.JobSuspended, "True"), stopped}, suspend: true, want: "Suspended", wantExplanation: "mpi-operator runs this job"},
		"succeeded": {conditions: []v2beta1.JobCondition{created, stopped, condition(v2beta1.JobSucceeded, "True")}, want: "Succeeded", wantExplanation: "said Succeeded"},
		"failed":    {conditions: []v2beta1.JobCondition{created, stopped, condition(v2beta1.JobFailed, "True")}, want: "Failed", wantExplanation: "said Failed"},
		"new":       {want: "Submitted", wantExplanation: "Waiting for the operator to process the job"},
	} {
		t.Run(name, func(t *testing.T) {
			mpiJob := &v2beta1.MPIJob{Status: v2beta1.MPIJobStatus{Conditions: tc.conditions}}
			mpiJob.Spec.RunPolicy.Suspend = &tc.suspend
			row := Of(mpiJob).Row()
			if row.Status != tc.want || row.Message != tc.wantExplanation {
				t.Errorf("a list shows %q with %q, want %q with %q", row.Status, row.Message, tc.want, tc.wantExplanation)
			}
		})
	}
}

func TestExplanationOfAQuotaWait(t *testing.T) {
	wait := func(name string) training.Progress {
		return training.Progress{Phase: training.PhasePending, QuotaWait: &training.QuotaWait{Name: name, Message: "Pod x-worker-1 could not be created: exceeded quota"}}
	}
	other := []v2beta1.JobCondition{{Type: v2beta1.JobPending, Status: "True", Message: "1 of 3 pods are scheduled"}}
	finished := wait("team")
	finished.Phase, finished.FailureMessage = training.PhaseFailed, "The quota was exceeded for 1m0s."
	suspended := append(slices.Clone(other), v2beta1.JobCondition{Type: v2beta1.JobSuspended, Status: "True", Message: "The job is suspended"})
	tests := map[string]struct {
		status v2beta1.MPIJobStatus
		want   string
	}{
		"a quota":        {v2beta1.MPIJobStatus{Progress: wait("team"), Conditions: other}, "Waiting for quota team: Pod x-worker-1 could not be created: exceeded quota"},
		"some quota":     {v2beta1.MPIJobStatus{Progress: wait(""), Conditions: other}, "Waiting for quota: Pod x-worker-1 could not be created: exceeded quota"},
		"no quota":       {v2beta1.MPIJobStatus{Progress: training.Progress{Phase: training.PhasePending}, Conditions: other}, "1 of 3 pods are scheduled"},
		"a failed job":   {v2beta1.MPIJobStatus{Progress: finished, Conditions: other}, "The quota was exceeded for 1m0s."},
		"suspended then": {v2beta1.MPIJobStatus{Progress: wait("team"), Conditions: suspended}, "The job is suspended"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Of(&v2beta1.MPIJob{Status: tc.status}).Explanation(); got != tc.want {
				t.Errorf("it says %q, want %q", got, tc.want)
			}
		})
	}
}
