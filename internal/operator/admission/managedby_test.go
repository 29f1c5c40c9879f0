// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

func managedBy(name string) func(*v2beta1.MPIJob) {
	return func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.ManagedBy = &name }
}

func startedByTrireme(mpiJob *v2beta1.MPIJob) { mpiJob.Status.Phase = training.PhaseRunning }

func startedByMPIOperator(mpiJob *v2beta1.MPIJob) {
	mpiJob.Status.Conditions = []v2beta1.JobCondition{{Type: v2beta1.JobRunning, Status: "True"}}
}

// A job that is not ours gets neither a name nor labels nor a creator.
func TestNamesInJobs(t *testing.T) {
	const trireme, mpiOperator = training.ManagedByTrireme, v2beta1.ManagedByMPIOperator
	const policy = `{"op":"add","path":"/spec/runPolicy/managedBy","value":"training.kubeflow.org/trireme"}`
	for title, tc := range map[string]struct {
		share  job.Share
		object client.Object
		old    client.Object
		// wantName and wantOurs are whether the patch has our name, and other changes.
		wantName, wantOurs bool
	}{
		"all, no name":                          {share: job.ShareAll, object: mpiJob(), wantOurs: true},
		"all, of mpi-operator":                  {share: job.ShareAll, object: mpiJob(managedBy(mpiOperator)), wantOurs: true},
		"new, no name":                          {share: job.ShareNew, object: mpiJob(), wantName: true, wantOurs: true},
		"new, our name":                         {share: job.ShareNew, object: mpiJob(managedBy(trireme)), wantOurs: true},
		"new, of mpi-operator":                  {share: job.ShareNew, object: mpiJob(managedBy(mpiOperator))},
		"new, of MultiKueue":                    {share: job.ShareNew, object: mpiJob(managedBy(training.ManagedByMultiKueue))},
		"new, a TrainJob":                       {share: job.ShareNew, object: trainJob(), wantOurs: true},
		"new, a forged status":                  {share: job.ShareNew, object: mpiJob(managedBy(mpiOperator), startedByTrireme)},
		"named, no name":                        {share: job.ShareNamed, object: mpiJob()},
		"named, our name":                       {share: job.ShareNamed, object: mpiJob(managedBy(trireme)), wantOurs: true},
		"new, a change of a job without a name": {share: job.ShareNew, object: mpiJob(), old: mpiJob()},
		"new, a change of a job that mpi-operator runs": {
			share: job.ShareNew, object: mpiJob(startedByMPIOperator), old: mpiJob(startedByMPIOperator),
		},
		"new, a change of a job that was started before": {share: job.ShareNew, object: mpiJob(startedByTrireme), old: mpiJob(startedByTrireme), wantOurs: true},
		"new, the name is left out":                      {share: job.ShareNew, object: mpiJob(), old: mpiJob(managedBy(trireme)), wantName: true, wantOurs: true},
		"named, the name is left out":                    {share: job.ShareNamed, object: mpiJob(), old: mpiJob(managedBy(trireme)), wantName: true, wantOurs: true},
	} {
		t.Run(title, func(t *testing.T) {
			operation := admissionv1.Create
			if tc.old != nil {
				operation = admissionv1.Update
			}
			got := askWith(t, tc.share, untouched(t), untouched(t), &strings.Builder{}, CreatorPath, requestFor(t, operation, tc.object, tc.old))
			if !got.Allowed {
				t.Fatalf("refused: %s", inBrief(got))
			}
			if hasName := strings.Contains(string(got.Patch), policy); hasName != tc.wantName {
				t.Errorf("the job gets our name: %t, want %t; patch: %s", hasName, tc.wantName, got.Patch)
			}
			if isOurs := strings.Contains(string(got.Patch), "/metadata/labels"); isOurs != tc.wantOurs {
				t.Errorf("the job gets our labels: %t, want %t; patch: %s", isOurs, tc.wantOurs, got.Patch)
			}
		})
	}
}

// A job without a runPolicy gets one.
func TestNameWithoutRunPolicy(t *testing.T) {
	request := requestFor(t, admissionv1.Create, mpiJob(), nil)
	request.Object.Raw = []byte(`{"apiVersion":"kubeflow.org/v2beta1","kind":"MPIJob","metadata":{"name":"resnet","namespace":"vision"},"spec":{}}`)
	got := askWith(t, job.ShareNew, untouched(t), untouched(t), &strings.Builder{}, CreatorPath, request)
	if want := `{"op":"add","path":"/spec/runPolicy","value":{"managedBy":"training.kubeflow.org/trireme"}}`; !strings.Contains(string(got.Patch), want) {
		t.Errorf("the patch is %s, want %s in it", got.Patch, want)
	}
}

// Jobs of mpi-operator are neither validated nor audited, unless they are made ours.
func TestJobsOfMPIOperator(t *testing.T) {
	const trireme, mpiOperator = training.ManagedByTrireme, v2beta1.ManagedByMPIOperator
	bad := func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SlotsPerWorker = new(int32(99)) }
	for title, tc := range map[string]struct {
		share       job.Share
		object, old client.Object
		operation   admissionv1.Operation
		wantAllowed bool
		wantAudit   bool
	}{
		"all":                {share: job.ShareAll, object: mpiJob(bad), operation: admissionv1.Create, wantAudit: true},
		"new, not named":     {share: job.ShareNew, object: mpiJob(bad), operation: admissionv1.Create, wantAllowed: true},
		"new, named":         {share: job.ShareNew, object: mpiJob(bad, managedBy(trireme)), operation: admissionv1.Create, wantAudit: true},
		"new, theirs":        {share: job.ShareNew, object: mpiJob(bad, managedBy(mpiOperator)), operation: admissionv1.Create, wantAllowed: true},
		"named, not named":   {share: job.ShareNamed, object: mpiJob(bad), operation: admissionv1.Create, wantAllowed: true},
		"named, named":       {share: job.ShareNamed, object: mpiJob(bad, managedBy(trireme)), operation: admissionv1.Create, wantAudit: true},
		"a change of theirs": {share: job.ShareNew, object: mpiJob(bad, startedByMPIOperator), old: mpiJob(startedByMPIOperator), operation: admissionv1.Update, wantAllowed: true},
		"a change of ours":   {share: job.ShareNew, object: mpiJob(bad, startedByTrireme), old: mpiJob(startedByTrireme), operation: admissionv1.Update, wantAudit: true},
		"theirs gets our name": {
			share: job.ShareNew, object: mpiJob(managedBy(trireme), startedByMPIOperator), old: mpiJob(startedByMPIOperator), operation: admissionv1.Update, wantAudit: true,
		},
		"theirs gets our name and a forged status": {
			share: job.ShareNew, object: mpiJob(managedBy(trireme), startedByTrireme), old: mpiJob(startedByMPIOperator), operation: admissionv1.Update, wantAudit: true,
		},
		"ours gets our name": {
			share: job.ShareNew, object: mpiJob(managedBy(trireme), startedByTrireme), old: mpiJob(startedByTrireme), operation: admissionv1.Update, wantAllowed: true, wantAudit: true,
		},
		"ours loses our name": {
			share: job.ShareNew, object: mpiJob(startedByTrireme), old: mpiJob(managedBy(trireme), startedByTrireme), operation: admissionv1.Update, wantAudit: true,
		},
		"theirs is deleted": {share: job.ShareNew, old: mpiJob(startedByMPIOperator), operation: admissionv1.Delete, wantAllowed: true},
		"ours is deleted":   {share: job.ShareNew, old: mpiJob(managedBy(trireme)), operation: admissionv1.Delete, wantAllowed: true, wantAudit: true},
	} {
		t.Run(title, func(t *testing.T) {
			var audit strings.Builder
			got := askWith(t, tc.share, holding(place()), holding(), &audit, mpiJobPath, requestFor(t, tc.operation, tc.object, tc.old))
			if diff := cmp.Diff(tc.wantAllowed, got.Allowed); diff != "" {
				t.Errorf("allowed (-want +got):\n%s\n%s", diff, inBrief(got))
			}
			if hasLine := audit.Len() > 0; hasLine != tc.wantAudit {
				t.Errorf("audited: %t, want %t", hasLine, tc.wantAudit)
			}
		})
	}
}
