package service

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/jobview"
	"github.com/trireme-mpi/trireme/internal/plan"
)

func mpiJob(name string, workers int32) *v2beta1.MPIJob {
	return &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v2beta1.MPIJobSpec{
		MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{v2beta1.MPIReplicaTypeWorker: {Replicas: &workers}},
	}}
}

func trainJob(name string, nodes int32) *v2alpha1.TrainJob {
	return &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v2alpha1.TrainJobSpec{Trainer: v2alpha1.Trainer{NumNodes: &nodes}}}
}

func TestRetryName(t *testing.T) {
	const moment = 1789456789
	long := strings.Repeat("a", 54)
	tests := map[string]struct {
		seen *jobview.View
		want string
	}{
		"a short name":                {jobview.Of(mpiJob("train", 2)), "train-retry-1789456789"},
		"restarted before":            {jobview.Of(mpiJob("train-retry-1700000000", 2)), "train-retry-1789456789"},
		"a name that speaks of retry": {jobview.Of(mpiJob("train-retry-often", 2)), "train-retry-often-retry-1789456789"},
		"an MPIJob's longest name":    {jobview.Of(mpiJob(long, 2)), strings.Repeat("a", 37) + "-retry-1789456789"},
		"many workers":                {jobview.Of(mpiJob(long[:50], 1000)), strings.Repeat("a", 35) + "-retry-1789456789"},
		"a TrainJob's longest name":   {jobview.Of(trainJob(long[:50], 2)), strings.Repeat("a", 33) + "-retry-1789456789"},
		"a dash at the cut":           {jobview.Of(mpiJob(strings.Repeat("a", 36)+"-"+strings.Repeat("b", 16), 2)), strings.Repeat("a", 36) + "-retry-1789456789"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found := retryName(test.seen, moment)
			if found != test.want {
				t.Errorf("%q, want %q", found, test.want)
			}
			made := test.seen.Identity()
			made.Name = found
			for _, host := range append(plan.Hosts(made), plan.NamesOf(made).LauncherHost) {
				if faults := validation.IsDNS1123Label(host); len(faults) > 0 {
					t.Errorf("host %q: %v", host, faults)
				}
			}
		})
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
