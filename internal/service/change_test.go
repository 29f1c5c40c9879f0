package service

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/jobview"
)

func mpiJob(name string, workers int32) *v2beta1.MPIJob {
	return &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v2beta1.MPIJobSpec{
		MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{v2beta1.MPIReplicaTypeWorker: {Replicas: &workers}},
	}}
}

func trainJob(name string, nodes int32) *v2alpha1.TrainJob {
	return &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v2alpha1.TrainJobSpec{Trainer: v2alpha1.Trainer{NumNodes: &nodes}}}
}

// A TrainJob has at most 44 characters, after a restart too.
func TestAgainHasANameThatFits(t *testing.T) {
	for length := 1; length <= 44; length++ {
		failed := trainJob(strings.Repeat("a", length), 2)
		again := New(Options{Clock: clockAt(1789456789)}).again(jobview.Of(failed))
		if name := again.GetName(); len(name) > 44 {
			t.Errorf("a name of %d characters becomes %s, of %d", length, name, len(name))
		}
	}
}

// What belonged to the job before does not go into the next.
func TestAgain(t *testing.T) {
	failed := mpiJob("train", 2)
	failed.UID, failed.ResourceVersion, failed.Finalizers = "b7", "12", []string{"somebody.example/waits"}
	failed.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	failed.Labels = map[string]string{training.LabelJobName: "train", training.LabelJobType: "mpijob", "team": "vision"}
	failed.Annotations = map[string]string{training.AnnotationCreatedBy: "ada", "kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"}
	failed.Status.Phase = training.PhaseFailed

	again := New(Options{Clock: clockAt(100)}).again(jobview.Of(failed)).(*v2beta1.MPIJob)
	if again.Name != "train-retry-100" || again.Namespace != "team" || again.UID != "" || again.ResourceVersion != "" || len(again.OwnerReferences) > 0 || len(again.Finalizers) > 0 || again.Status.Phase != "" {
		t.Errorf("it is %+v, status %+v", again.ObjectMeta, again.Status)
	}
	if len(again.Labels) != 1 || again.Labels["team"] != "vision" || len(again.Annotations) != 1 || again.Annotations["note"] != "kept" {
		t.Errorf("labels %v, annotations %v", again.Labels, again.Annotations)
	}
	if again.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] == failed.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] {
		t.Error("both jobs share a part of their specs")
	}
	if failed.Labels[training.LabelJobName] != "train" {
		t.Error("the failed job was changed")
	}
}
