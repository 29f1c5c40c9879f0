// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// ofEveryKind is an object of each kind that nothing is wrong with.
func ofEveryKind() map[string]client.Object {
	return map[string]client.Object{
		"MPIJob": mpiJob(), "TrainJob": trainJob(), "TrainingRuntime": namespacedRuntime(namespace), "ClusterTrainingRuntime": clusterRuntime(),
	}
}

func TestEveryKindIsServed(t *testing.T) {
	cache := holding(place(), namespacedRuntime(namespace))
	for kind, object := range ofEveryKind() {
		t.Run(kind, func(t *testing.T) {
			wantAnswer(t, create(t, cache, untouched(t), object), 200, "")
		})
	}
}

// Everything that is wrong is told at once, in Kubernetes' own form.
func TestRefusal(t *testing.T) {
	bad := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.SlotsPerWorker = new(int32(99))
		mpiJob.Spec.RunPolicy.BackoffLimit = new(int32(-1))
		mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Command = nil
	})
	got := create(t, holding(place()), holding(), bad)
	const slots, backoff = "Invalid value: 99: slotsPerWorker must be between 1 and 8", "Invalid value: -1: must be at least 0"
	want := &admissionv1.AdmissionResponse{
		UID: "4711",
		Result: &metav1.Status{
			Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: 422,
			Message: `MPIJob.kubeflow.org "resnet" is invalid: [spec.slotsPerWorker: ` + slots + ", spec.runPolicy.backoffLimit: " + backoff + "]",
			Details: &metav1.StatusDetails{Group: "kubeflow.org", Kind: "MPIJob", Name: "resnet", Causes: []metav1.StatusCause{
				{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.slotsPerWorker", Message: slots},
				{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.runPolicy.backoffLimit", Message: backoff},
			}},
		},
		// What is only worth a warning is told as well.
		Warnings: []string{"spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]: has neither command nor args, so the entrypoint of its image must start MPI"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// The size is that of the request: what is not in our types counts as well.
func TestSizeIsThatOfTheRequest(t *testing.T) {
	cache := holding(place(), namespacedRuntime(namespace))
	for kind, object := range ofEveryKind() {
		t.Run(kind, func(t *testing.T) {
			request := requestFor(t, admissionv1.Create, object, nil)
			request.Object.Raw = append([]byte(`{"unknown":"`+strings.Repeat("x", 1<<20)+`",`), request.Object.Raw[1:]...)
			wantAnswer(t, ask(t, cache, holding(), io.Discard, paths[kind], request), 422, "the object must have at most 1048576 bytes")
		})
	}
}

// nonsense is JSON, or it would not reach us, but no object.
const nonsense = `"{]"`

func rawText(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// The API server's notes about who set which field are not the user's.
func TestManagedFieldsAreNotCounted(t *testing.T) {
	job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		notes := `{"f:spec":"` + strings.Repeat("x", 1<<20) + `"}`
		mpiJob.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(notes)}, {Manager: "nobody"}}
	})
	wantAnswer(t, create(t, holding(place()), holding(), job), 200, "")
}

func TestWhatCannotBeRead(t *testing.T) {
	for kind, object := range ofEveryKind() {
		for name, tc := range map[string]struct {
			operation   admissionv1.Operation
			object, old string
		}{
			"a new one that is no object":         {operation: admissionv1.Create, object: nonsense},
			"a new one that is of another shape":  {operation: admissionv1.Create, object: `{"metadata": [], "spec": 1}`},
			"a new one that is not there":         {operation: admissionv1.Create},
			"a changed one that is no object":     {operation: admissionv1.Update, object: nonsense, old: string(raw(t, object))},
			"one that was no object before":       {operation: admissionv1.Update, object: string(raw(t, object)), old: nonsense},
			"one that was not there before":       {operation: admissionv1.Update, object: string(raw(t, object))},
			"one that was of another kind before": {operation: admissionv1.Update, object: string(raw(t, object)), old: `{"apiVersion":"v1","kind":"Pod"}`},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				request := requestFor(t, tc.operation, object, object)
				request.Object.Raw, request.OldObject.Raw = rawText(tc.object), rawText(tc.old)
				wantAnswer(t, ask(t, untouched(t), untouched(t), io.Discard, paths[kind], request), 400, "")
			})
		}
	}
}

// A job goes when its owner wants it gone, whatever is stored and whatever is
// sent.
func TestDeletingIsAlwaysAllowed(t *testing.T) {
	for kind, object := range ofEveryKind() {
		for name, stored := range map[string]string{"nothing": "", "nonsense": nonsense, "another kind": `{"apiVersion":"v1","kind":"Pod"}`, "the object": string(raw(t, object))} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				request := requestFor(t, admissionv1.Delete, nil, object)
				request.OldObject.Raw = rawText(stored)
				wantAnswer(t, ask(t, untouched(t), untouched(t), io.Discard, paths[kind], request), 200, "")
			})
		}
	}
}

// An update is judged by what changes, without asking the cluster.
func TestUpdates(t *testing.T) {
	const immutable = "field is immutable"
	goes := func(object client.Object) client.Object {
		object.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
		object.SetFinalizers([]string{"example.com/wait"})
		return object
	}
	worker := func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Containers[0].Image = "other:1" }
	image := func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.Image = "other:1" }
	broken := namespacedRuntime(namespace)
	broken.Spec.MLPolicy.NumNodes = new(int32(0))
	worse := broken.DeepCopy()
	worse.Spec.MLPolicy.MPIImplementation = v2alpha1.MPIImplementationMPICH
	withLabel := func(object client.Object) client.Object {
		object.SetLabels(map[string]string{"team": "vision"})
		return object
	}
	brokenEverywhere := clusterRuntime()
	brokenEverywhere.Spec = broken.Spec
	tests := map[string]struct {
		old, changed client.Object
		wantCode     int32
		want         string
	}{
		"an MPIJob that stays":                   {old: mpiJob(), changed: mpiJob(), wantCode: 200},
		"an MPIJob that changes":                 {old: mpiJob(), changed: mpiJob(worker), wantCode: 422, want: "containers[0].image: Forbidden: " + immutable},
		"an MPIJob that changes and goes":        {old: mpiJob(), changed: goes(mpiJob(worker)), wantCode: 200},
		"a TrainJob that stays":                  {old: trainJob(), changed: trainJob(), wantCode: 200},
		"a TrainJob that changes":                {old: trainJob(), changed: trainJob(image), wantCode: 422, want: "spec.trainer.image: Forbidden: " + immutable},
		"a TrainJob that changes and goes":       {old: trainJob(), changed: goes(trainJob(image)), wantCode: 200},
		"a runtime that gets worse":              {old: namespacedRuntime(namespace), changed: broken.DeepCopy(), wantCode: 422, want: "spec.mlPolicy.numNodes: Invalid value: 0: numNodes must be between 1 and 64"},
		"a runtime that gets better":             {old: broken.DeepCopy(), changed: namespacedRuntime(namespace), wantCode: 200},
		"a runtime that gets worse and goes":     {old: namespacedRuntime(namespace), changed: goes(broken.DeepCopy()), wantCode: 200},
		"a cluster's that gets worse":            {old: clusterRuntime(), changed: brokenEverywhere.DeepCopy(), wantCode: 422, want: "spec.mlPolicy.numNodes: Invalid value: 0: numNodes must be between 1 and 64"},
		"a cluster's that gets worse and goes":   {old: clusterRuntime(), changed: goes(brokenEverywhere.DeepCopy()), wantCode: 200},
		"a runtime that is bad and gets a label": {old: broken.DeepCopy(), changed: withLabel(broken.DeepCopy()), wantCode: 200},
		"a runtime that is bad and stays so":     {old: broken.DeepCopy(), changed: worse, wantCode: 422, want: "spec.mlPolicy.numNodes"},
		"an MPIJob that went and comes again":    {old: goes(mpiJob()), changed: mpiJob(worker), wantCode: 422, want: immutable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			request := requestFor(t, admissionv1.Update, tc.changed, tc.old)
			wantAnswer(t, ask(t, untouched(t), untouched(t), io.Discard, paths[kindOf(tc.changed)], request), tc.wantCode, tc.want)
		})
	}
}
