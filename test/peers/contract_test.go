// SPDX-License-Identifier: Apache-2.0

//go:build !operator

package peers

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What Kueue reads of an MPIJob, and what it leaves alone, with the test in the
// operator's place: the status is what makes Kueue go on.
func TestKueueReadsMPIJobs(t *testing.T) {
	place := newPlace(t)
	place.createQueue(jobPods)
	mpiJob.submit(place, jobShape{name: "job"})
	place.eventually("the job is let in", func() error { return mpiJob.isSuspended(place, "job", false) })
	admitted := find(place, mpiJob, "job")
	for _, own := range []string{"cleanPodPolicy", "requireAllHosts", "networkPolicy"} {
		if _, found, _ := unstructured.NestedFieldNoCopy(admitted.Object, "spec", own); !found {
			t.Errorf("spec.%s is gone", own)
		}
	}
	if podSet := workerLabel(admitted); podSet != "worker" {
		t.Errorf("the pods of workers are labelled %q as a set of pods, want worker", podSet)
	}
	setStatus(place, 1, "Running", "True")
	place.eventually("Kueue knows that the pods run", hasCondition(place, "PodsReady", metav1.ConditionTrue))

	mpiJob.patchWorkload(place, "job", `{"spec":{"active":false}}`)
	place.eventually("the job is suspended", func() error { return mpiJob.isSuspended(place, "job", true) })
	if podSet := workerLabel(find(place, mpiJob, "job")); podSet != "" {
		t.Errorf("the suspended job still has the label %q", podSet)
	}
	place.stays("the quota is kept while pods are there", patience, hasCondition(place, "QuotaReserved", metav1.ConditionTrue))
	setStatus(place, 0, "Running", "False")
	place.eventually("the quota is given back", hasCondition(place, "QuotaReserved", metav1.ConditionFalse))

	mpiJob.patchWorkload(place, "job", `{"spec":{"active":true}}`)
	place.eventually("the job is let in again", func() error { return mpiJob.isSuspended(place, "job", false) })
	setStatus(place, 0, "Succeeded", "True")
	place.eventually("Kueue knows that the job has ended", hasCondition(place, "Finished", metav1.ConditionTrue))
}

func find(place *place, kind jobKind, name string) *unstructured.Unstructured {
	place.Helper()
	object, err := place.find(kind.kind, name)
	if err != nil {
		place.Fatal(err)
	}
	return object
}

func workerLabel(job *unstructured.Unstructured) string {
	return text(job, "spec", "mpiReplicaSpecs", "Worker", "template", "metadata", "labels", "kueue.x-k8s.io/podset")
}

// setStatus writes what the operator would: how many pods of each role there
// are, and one condition.
func setStatus(place *place, active int, condition, status string) {
	place.Helper()
	place.patch(mpiJob.kind, "job", fmt.Sprintf(`{"status": {"replicaStatuses": {"Launcher": {"active": %[1]d}, "Worker": {"active": %[1]d}}, "conditions": [{"type": %[2]q, "status": %[3]q}]}}`,
		active, condition, status), "status")
}

func hasCondition(place *place, name string, want metav1.ConditionStatus) func() error {
	return func() error {
		workload, err := mpiJob.workload(place, "job")
		if err != nil {
			return err
		}
		if have := condition(workload, name); have.Status != want {
			return fmt.Errorf("%s of the Workload is %q, want %q: %s", name, have.Status, want, have.Message)
		}
		return nil
	}
}
