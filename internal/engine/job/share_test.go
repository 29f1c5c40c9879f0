// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// statuses of an MPIJob, by who wrote them.
var statuses = map[string]v2beta1.MPIJobStatus{
	"none":         {},
	"Trireme":      {Progress: training.Progress{Phase: training.PhaseRunning}, Conditions: []v2beta1.JobCondition{{Type: v2beta1.JobCreated}}},
	"mpi-operator": {Conditions: []v2beta1.JobCondition{{Type: v2beta1.JobCreated}}},
}

func managed(managedBy *string, status string) *v2beta1.MPIJob {
	return mpiJob(func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.RunPolicy.ManagedBy, mpiJob.Status = managedBy, statuses[status]
	})
}

func TestShareRuns(t *testing.T) {
	const trireme, mpiOperator, multiKueue = training.ManagedByTrireme, v2beta1.ManagedByMPIOperator, training.ManagedByMultiKueue
	for _, tc := range []struct {
		managedBy *string
		status    string
		// want are the shares with which Trireme runs the job.
		want []Share
	}{
		{nil, "none", []Share{ShareAll}},
		{nil, "Trireme", Shares},
		{nil, "mpi-operator", nil},
		{new(""), "none", []Share{ShareAll}},
		{new(mpiOperator), "none", []Share{ShareAll}},
		{new(mpiOperator), "Trireme", Shares},
		{new(mpiOperator), "mpi-operator", nil},
		{new(trireme), "none", Shares},
		{new(trireme), "Trireme", Shares},
		// The phase is lost if someone applies the CRD of mpi-operator.
		{new(trireme), "mpi-operator", Shares},
		{new(multiKueue), "none", nil},
		{new(multiKueue), "Trireme", nil},
		{new("example.com/other"), "none", nil},
	} {
		for _, share := range Shares {
			job := managed(tc.managedBy, tc.status)
			if got, want := share.Runs(job), slices.Contains(tc.want, share); got != want {
				t.Errorf("with %s, a job with managedBy %s and the status of %s is ours: %t, want %t", share, shown(tc.managedBy), tc.status, got, want)
			}
			if want := share.Runs(job) || share == ShareAll; share.Judges(job) != want {
				t.Errorf("with %s, admission judges a job with managedBy %s: %t, want %t", share, shown(tc.managedBy), !want, want)
			}
		}
	}
}

func TestShareNames(t *testing.T) {
	for _, tc := range []struct {
		share       Share
		managedBy   *string
		status      string
		new, stored bool
	}{
		{share: ShareAll, status: "none"},
		{share: ShareAll, status: "Trireme"},
		{share: ShareNew, status: "none", new: true},
		{share: ShareNew, status: "none", managedBy: new(""), new: true},
		{share: ShareNew, status: "none", managedBy: new(v2beta1.ManagedByMPIOperator)},
		{share: ShareNew, status: "none", managedBy: new(training.ManagedByMultiKueue)},
		{share: ShareNew, status: "Trireme", new: true, stored: true},
		{share: ShareNew, status: "Trireme", managedBy: new(v2beta1.ManagedByMPIOperator)},
		{share: ShareNew, status: "Trireme", managedBy: new(training.ManagedByTrireme)},
		{share: ShareNew, status: "mpi-operator", new: true},
		{share: ShareNamed, status: "none"},
		{share: ShareNamed, status: "Trireme", stored: true},
		{share: ShareNamed, status: "mpi-operator"},
	} {
		job := managed(tc.managedBy, tc.status)
		if got := tc.share.NamesNew(job); got != tc.new {
			t.Errorf("%s, managedBy %s: a new job gets our name: %t, want %t", tc.share, shown(tc.managedBy), got, tc.new)
		}
		if got := tc.share.NamesStarted(job); got != tc.stored {
			t.Errorf("%s, managedBy %s, status of %s: a stored job gets our name: %t, want %t", tc.share, shown(tc.managedBy), tc.status, got, tc.stored)
		}
	}
}

// mpi-operator runs a job if it has no managedBy or its own. Whatever the share, the two
// operators never run the same job, once jobs that we have started have our name.
func TestSharesAreDisjoint(t *testing.T) {
	for _, managedBy := range []*string{nil, new(v2beta1.ManagedByMPIOperator), new(training.ManagedByTrireme), new(training.ManagedByMultiKueue), new("")} {
		for status := range statuses {
			for _, share := range []Share{ShareNew, ShareNamed} {
				job := managed(managedBy, status)
				if share.NamesStarted(job) {
					job.Spec.RunPolicy.ManagedBy = new(training.ManagedByTrireme)
				}
				theirs := job.Spec.RunPolicy.ManagedBy == nil || *job.Spec.RunPolicy.ManagedBy == v2beta1.ManagedByMPIOperator
				// Such a job is from before mpi-operator was started: the guide says to wait for it.
				isException := managedBy != nil && *managedBy == v2beta1.ManagedByMPIOperator && StartedByTrireme(job)
				if share.Runs(job) && theirs && !isException {
					t.Errorf("%s, managedBy %s, status of %s: both operators run the job", share, shown(managedBy), status)
				}
			}
		}
	}
}

func TestIsOfMPIOperator(t *testing.T) {
	for _, tc := range []struct {
		managedBy *string
		status    string
		want      bool
	}{
		{nil, "mpi-operator", true}, {new(v2beta1.ManagedByMPIOperator), "mpi-operator", true},
		{nil, "none", false}, {nil, "Trireme", false}, {new(training.ManagedByTrireme), "mpi-operator", false}, {new(training.ManagedByMultiKueue), "mpi-operator", false},
	} {
		if got := IsOfMPIOperator(managed(tc.managedBy, tc.status)); got != tc.want {
			t.Errorf("managedBy %s, status of %s: %t, want %t", shown(tc.managedBy), tc.status, got, tc.want)
		}
	}
}

func shown(managedBy *string) string {
	if managedBy == nil {
		return "unset"
	}
	return fmt.Sprintf("%q", *managedBy)
}
