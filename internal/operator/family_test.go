package operator

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/diagnosis"
	"github.com/trireme-mpi/trireme/internal/job"
)

// Pods outlive the Job that made them, and times tell only the second.
func TestFamily(t *testing.T) {
	second := metav1.Now().Rfc3339Copy()
	later := metav1.NewTime(second.Add(1e9))
	const jobUID, makerUID = types.UID("job"), types.UID("launcher's Job")
	tests := map[string]struct {
		maker   types.UID
		created metav1.Time
		// seen: the Job was there when the job was looked at before, and was its own.
		seen bool
		own  bool
		want bool
	}{
		"its Job is gone":                                                {makerUID, second, true, true, true},
		"its Job is gone, and nobody saw it":                             {makerUID, later, false, false, true},
		"of the job's second, by a Job that nobody saw":                  {makerUID, second, false, false, false},
		"an earlier job's, by another Job, in the same second":           {"another Job", second, true, true, false},
		"an earlier job's, which its Job made after the job was created": {makerUID, later, true, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reconciler := &Reconciler{}
			mpiJob := &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{UID: jobUID, CreationTimestamp: second}}
			if test.seen {
				family := reconciler.familyOf(mpiJob)
				family.add(workload{Workload: diagnosis.Workload{Exists: test.own}, uid: makerUID})
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: test.created, OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: test.maker}}, batchv1.SchemeGroupVersion.WithKind("Job")),
			}}}
			family := reconciler.familyOf(mpiJob)
			if family.includes(pod) != test.want {
				t.Errorf("it belongs to the job: %t", !test.want)
			}
			reconciler.submitted.forgetAll(jobUID)
			if left := reconciler.submitted.makersOf(jobUID); len(left) > 0 {
				t.Errorf("%v are remembered of a job that is gone", left)
			}
		})
	}
}

// Anybody can run a Job whose pods have the labels of a job, and an earlier job of the
// name had the same.
func TestForeignPods(t *testing.T) {
	ownedBy := func(uid types.UID, kind, owner string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: string(uid), UID: uid, OwnerReferences: []metav1.OwnerReference{
			{Kind: kind, Name: "train", UID: types.UID(owner), Controller: new(true)},
		}}}
	}
	foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "own-work", UID: "own work"}}
	ours, earlier := ownedBy("worker", "JobSet", "an earlier start"), ownedBy("launcher", "MPIJob", "an earlier job")
	mpiJob := &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "job"}}
	made := &job.Job{Kind: job.KindMPIJob, Namespace: "team", Name: "train", UID: "job"}
	for name, test := range map[string]struct {
		maker *batchv1.Job
		// later: it is still known when the Job is gone.
		want, later bool
	}{
		"somebody's own Job":                    {foreign, true, false},
		"one that was left of an earlier start": {ours, false, false},
		"an earlier job's":                      {earlier, true, true},
		"one that is gone":                      {&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "3"}}, false, false},
		"one that is gone, and its name taken":  {&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "own-work", UID: "4"}}, false, false},
	} {
		reconciler := &Reconciler{Live: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(foreign, ours, earlier).Build()}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", CreationTimestamp: metav1.Now(), OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(test.maker, batchv1.SchemeGroupVersion.WithKind("Job")),
		}}}
		family := reconciler.familyOf(mpiJob)
		if found, err := reconciler.isForeign(t.Context(), made, &family, pod); err != nil || found != test.want {
			t.Errorf("%s: %t, %v", name, found, err)
		}
		if again := reconciler.familyOf(mpiJob); again.includes(pod) == test.later {
			t.Errorf("%s: it belongs to the job: %t", name, test.later)
		}
	}
}
