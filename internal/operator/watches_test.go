package operator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/job"
)

// The workers of a job that is deleted go after it: who remembers them then does so
// for ever.
func TestWorkersOfAJobThatIsGoneAreForgotten(t *testing.T) {
	there := &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train"}}
	for sentence, test := range map[string]struct {
		cluster []client.Object
		want    int
	}{
		"the job is there": {[]client.Object{there}, 1},
		"the job is gone":  {nil, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			reconciler := &Reconciler{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(test.cluster...).Build(), kind: mpiJobs{}}
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train-worker-0", UID: "1", Labels: map[string]string{
				training.LabelJobType: job.KindMPIJob.Type(), training.LabelJobName: "train", training.LabelReplicaType: training.RoleWorker,
			}}}
			leaving := pod.DeepCopy()
			leaving.DeletionTimestamp = new(metav1.Now())
			reconciler.pods().Update(t.Context(), event.UpdateEvent{ObjectOld: pod, ObjectNew: leaving}, queue)
			if got := len(reconciler.deletions.seen); got != test.want {
				t.Errorf("workers of %d jobs are remembered while one goes, want %d", got, test.want)
			}
			reconciler.pods().Delete(t.Context(), event.DeleteEvent{Object: pod}, queue)
			if got := len(reconciler.deletions.seen); got != test.want {
				t.Errorf("workers of %d jobs are remembered, want %d", got, test.want)
			}
		})
	}
}
