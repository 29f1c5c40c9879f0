package operator

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/plan"
)

// A Job knows that its pod has ended well before it is called complete, and the pod may
// be gone by then.
func TestJobIsComplete(t *testing.T) {
	made := &job.Job{Kind: job.KindMPIJob, Namespace: "team", Name: "train", UID: "job"}
	condition := func(kind batchv1.JobConditionType) []batchv1.JobCondition {
		return []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue}}
	}
	for name, test := range map[string]struct {
		status batchv1.JobStatus
		want   bool
	}{
		"it runs":                 {batchv1.JobStatus{Active: 1}, false},
		"its pod has ended well":  {batchv1.JobStatus{Succeeded: 1}, true},
		"it is called complete":   {batchv1.JobStatus{Succeeded: 1, Conditions: condition(batchv1.JobComplete)}, true},
		"its pod has failed":      {batchv1.JobStatus{Failed: 1}, false},
		"it is said to have lost": {batchv1.JobStatus{Failed: 1, Conditions: condition(batchv1.JobFailed)}, false},
	} {
		launcher := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train-launcher", OwnerReferences: []metav1.OwnerReference{plan.OwnerOf(made)}},
			Status:     test.status,
		}
		reader := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(launcher).Build()
		if found, err := batchJob(t.Context(), reader, made, launcher.Name); err != nil || found.Complete != test.want {
			t.Errorf("%s: complete %t, %v", name, found.Complete, err)
		}
	}
}
