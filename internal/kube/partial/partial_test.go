// SPDX-License-Identifier: Apache-2.0

package partial

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

var bulk = strings.Repeat("x", 2*Threshold)

// mpiJob has a template with an argument.
func mpiJob(argument string) *v2beta1.MPIJob {
	job := &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "train", UID: "1", ResourceVersion: "7", Generation: 3, Labels: map[string]string{training.LabelQueue: "gpus"},
	}}
	job.Spec.RunPolicy.Suspend = new(true)
	worker := &v2beta1.ReplicaSpec{}
	worker.Template.Spec.Containers = []corev1.Container{{Name: "worker", Args: []string{argument}}}
	job.Spec.MPIReplicaSpecs = map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{v2beta1.MPIReplicaTypeWorker: worker}
	job.Status.Phase = training.PhasePending
	return job
}

func TestLargeObjectsAreKeptInPart(t *testing.T) {
	trainJob := &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "train"}}
	trainJob.Spec.Trainer.Args = []string{bulk}
	runtimeOfTeam := &v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "mpi"}}
	runtimeOfTeam.Annotations = map[string]string{"a": bulk}
	launcher := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "train-launcher"}}
	launcher.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{bulk}}}
	set := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "train"}}
	set.Spec.ReplicatedJobs = make([]jobset.ReplicatedJob, 1)
	set.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{bulk}}}
	annotated := mpiJob("")
	annotated.Annotations = map[string]string{"note": bulk}
	labelled := mpiJob("")
	for i := range 1000 {
		labelled.Labels[fmt.Sprintf("key-%d", i)] = strings.Repeat("x", 63)
	}
	for name, object := range map[string]client.Object{
		"MPIJob": mpiJob(bulk), "TrainJob": trainJob, "TrainingRuntime": runtimeOfTeam, "Job": launcher, "JobSet": set,
		"annotations": annotated, "labels": labelled,
	} {
		t.Run(name, func(t *testing.T) {
			whole := object.DeepCopyObject()
			kept, size := Keep(object)
			if !Is(kept) || size < 2*Threshold || sizeOf(kept) > 2048 {
				t.Errorf("partial: %t, of %d bytes %d are kept", Is(kept), size, sizeOf(kept))
			}
			if difference := cmp.Diff(whole, object.DeepCopyObject()); difference != "" {
				t.Errorf("the object itself was changed: %s", difference)
			}
			again, err := Transform(kept)
			if err != nil || again != kept {
				t.Errorf("a second time it is %v (%v)", again, err)
			}
		})
	}
}

func TestPartialJobsKeepTheirState(t *testing.T) {
	job := mpiJob(bulk)
	kept, _ := Keep(job)
	small := kept.(*v2beta1.MPIJob)
	if !*small.Spec.RunPolicy.Suspend || small.Status.Phase != training.PhasePending || small.UID != "1" || small.ResourceVersion != "7" ||
		small.Generation != 3 || small.Labels[training.LabelQueue] != "gpus" {
		t.Errorf("%+v", small)
	}
}

func TestSmallObjectsStayWhole(t *testing.T) {
	withStatus := mpiJob("-np 2")
	withStatus.Status.FailureMessage = bulk
	forCluster := &v2alpha1.ClusterTrainingRuntime{}
	forCluster.Annotations = map[string]string{"a": bulk}
	for name, object := range map[string]client.Object{"small": mpiJob("-np 2"), "large status": withStatus, "runtime of the cluster": forCluster} {
		t.Run(name, func(t *testing.T) {
			if kept, _ := Keep(object); kept != object || Is(kept) {
				t.Error("only a part is kept")
			}
		})
	}
}

// TestMarkCannotBeForged: a user who could mark a job would have it read from the API
// server again and again; one who could take the mark away would have it run without
// its workers.
func TestMarkCannotBeForged(t *testing.T) {
	forged := mpiJob("-np 2")
	forged.Annotations = map[string]string{annotation: "a guess"}
	if Is(forged) {
		t.Error("a whole job is taken for a partial one")
	}
	forged = mpiJob(bulk)
	forged.Annotations = map[string]string{annotation: "a guess"}
	if kept, _ := Keep(forged); !Is(kept) {
		t.Error("a partial job is taken for a whole one")
	}
}

// TestChangesOfDroppedMetadataAreSeen: the operator looks again at a job whose labels or
// annotations have changed.
func TestChangesOfDroppedMetadataAreSeen(t *testing.T) {
	marks := map[string]bool{}
	for _, change := range []func(*v2beta1.MPIJob){
		func(*v2beta1.MPIJob) {},
		func(job *v2beta1.MPIJob) { job.Annotations = map[string]string{"note": "new"} },
		func(job *v2beta1.MPIJob) { job.Labels["note"] = "new" },
	} {
		job := mpiJob(bulk)
		change(job)
		kept, _ := Keep(job)
		marks[kept.GetAnnotations()[annotation]] = true
	}
	if len(marks) != 3 {
		t.Errorf("three jobs have %d marks", len(marks))
	}
}

func TestTransformDropsCopies(t *testing.T) {
	job := mpiJob("-np 2")
	job.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "note": "stays"}
	job.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	kept, err := Transform(job)
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(map[string]string{"note": "stays"}, kept.(*v2beta1.MPIJob).Annotations); difference != "" || kept.(*v2beta1.MPIJob).ManagedFields != nil {
		t.Errorf("%s %v", difference, kept.(*v2beta1.MPIJob).ManagedFields)
	}
	launcher := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}}}
	if _, err := Transform(launcher); err != nil || launcher.Annotations == nil || launcher.Annotations[corev1.LastAppliedConfigAnnotation] == "" {
		t.Error("an annotation was dropped that a write of the Job's status would delete")
	}
}

func TestComplete(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v2beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	stored := mpiJob(bulk)
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build()
	object, _ := Keep(mpiJob(bulk))
	if err := Complete(t.Context(), live, object); err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(stored.Spec, object.(*v2beta1.MPIJob).Spec); difference != "" || Is(object) {
		t.Errorf("partial: %t, %s", Is(object), difference)
	}
	whole := mpiJob("-np 2")
	whole.Name = "not stored"
	if err := Complete(t.Context(), live, whole); err != nil || whole.Spec.MPIReplicaSpecs == nil {
		t.Errorf("a whole job was read again: %v", err)
	}
	missing, _ := Keep(mpiJob(bulk))
	missing.SetName("missing")
	if err := Complete(t.Context(), live, missing); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
}

// TestListsAreReadInPages also when the API server forgets the first of them meanwhile.
func TestListsAreReadInPages(t *testing.T) {
	expirations := 1
	list := func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.Limit != PageSize || options.ResourceVersion != "" {
			t.Errorf("%+v", options)
		}
		page := &v2beta1.MPIJobList{Items: []v2beta1.MPIJob{*mpiJob(bulk), *mpiJob(bulk)}}
		page.ResourceVersion, page.Continue = "100", options.Continue+"next"
		if len(options.Continue) > 8 {
			page.Continue = ""
		}
		if options.Continue != "" && expirations > 0 {
			expirations--
			return nil, apierrors.NewResourceExpired("compacted")
		}
		return page, nil
	}
	found, err := listPages(t.Context(), metav1.ListOptions{ResourceVersion: "0", Limit: 500}, list)
	if err != nil {
		t.Fatal(err)
	}
	read := found.(*v2beta1.MPIJobList)
	if len(read.Items) != 8 || read.Continue != "" || read.ResourceVersion != "100" {
		t.Errorf("%d jobs, continue %q, version %q", len(read.Items), read.Continue, read.ResourceVersion)
	}
	for i := range read.Items {
		if !Is(&read.Items[i]) {
			t.Error("a large job is kept whole")
		}
	}
}

func TestTrimPod(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "worker", Annotations: map[string]string{"a": bulk}}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "A", Value: bulk}}}}
	TrimPod(pod)
	if sizeOf(pod) > 1024 || pod.Spec.Containers[0].Name != "main" {
		t.Errorf("%d bytes are kept", sizeOf(pod))
	}
}
