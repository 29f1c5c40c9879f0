package operator

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
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
		reader := cacheOf(launcher)
		if found, err := batchJob(t.Context(), reader, made, launcher.Name); err != nil || found.Complete != test.want {
			t.Errorf("%s: complete %t, %v", name, found.Complete, err)
		}
	}
}

// What is left of an earlier start says nothing of the present one. Before there is
// another, it must still be gone.
func TestPodsOfAnEarlierStart(t *testing.T) {
	object := &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "job"}}
	made := &job.Job{Kind: job.KindTrainJob, Namespace: "team", Name: "train", UID: "job"}
	labels := plan.RoleSelector(made, training.RoleWorker)
	labels[jobset.JobSetUIDKey] = "before"
	left := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "train-worker-0-0-abcde", Labels: labels, CreationTimestamp: metav1.Now(), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "batch/v1", Kind: "Job", Name: "train-worker-0", UID: "worker's Job", Controller: new(true)},
		},
	}}
	present := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "now", OwnerReferences: []metav1.OwnerReference{plan.OwnerOf(made)}}}
	for name, test := range map[string]struct {
		objects []client.Object
		want    int
	}{
		"its JobSet is gone":      {[]client.Object{left}, 1},
		"there is another JobSet": {[]client.Object{left, present}, 0},
	} {
		reader := cacheOf(test.objects...)
		reconciler := &Reconciler{Client: reader, Live: reader, Clock: clock.RealClock{}, cluster: &surroundings{}}
		reconciler.cluster.jobSets.Store(true)
		deleted := left.DeepCopy()
		deleted.UID = "earlier"
		reconciler.deletions.note(client.ObjectKeyFromObject(object), deleted, true)
		seen, err := reconciler.gather(t.Context(), object, made)
		if err != nil || len(seen.Workers) != test.want || len(seen.Deleted) != test.want {
			t.Errorf("%s: %d workers are seen, and %d deletions, %v", name, len(seen.Workers), len(seen.Deleted), err)
		}
	}
}

// cacheOf is a client that finds objects by the operator's indexes.
func cacheOf(objects ...client.Object) client.Client {
	builder := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...)
	for _, index := range Indexes() {
		builder = builder.WithIndex(index.Object, index.Field, index.Values)
	}
	return builder.Build()
}
