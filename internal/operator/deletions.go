package operator

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/diagnosis"
)

// deletions remembers in which order the workers of jobs were deleted: a pod tells
// only the second, and JobSet deletes all others within a tenth of one. What a
// fresh process has not seen is guessed from the pods.
type deletions struct {
	mutex sync.Mutex
	seen  map[types.NamespacedName]*deletedWorkers
}

type deletedWorkers struct {
	// attempt of JobSet's that the workers belong to: the newest.
	attempt int32
	pods    []*corev1.Pod
}

// note takes a worker as it is now, or as it was before it was gone. It must be
// called in the order of the changes.
func (deletions *deletions) note(job types.NamespacedName, pod *corev1.Pod, gone bool) {
	if pod.Labels[training.LabelReplicaType] != training.RoleWorker {
		return
	}
	deletions.mutex.Lock()
	defer deletions.mutex.Unlock()
	known := deletions.seen[job]
	if pod.DeletionTimestamp == nil && !gone {
		// A worker of an MPIJob that is made anew has the name of the one before.
		if known != nil {
			known.pods = slices.DeleteFunc(known.pods, func(one *corev1.Pod) bool { return one.Name == pod.Name })
		}
		return
	}
	attempt := diagnosis.AttemptOf(pod)
	if known == nil || known.attempt < attempt {
		known = &deletedWorkers{attempt: attempt}
	}
	isNoted := slices.ContainsFunc(known.pods, func(one *corev1.Pod) bool { return one.UID == pod.UID })
	if known.attempt == attempt && !isNoted {
		known.pods = append(known.pods, withDeletionTime(pod))
	}
	if deletions.seen == nil {
		deletions.seen = map[types.NamespacedName]*deletedWorkers{}
	}
	deletions.seen[job] = known
}

// withDeletionTime is a pod with a time of its deletion: those that were given no
// grace have none.
func withDeletionTime(pod *corev1.Pod) *corev1.Pod {
	if pod.DeletionTimestamp != nil {
		return pod
	}
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = new(metav1.Now())
	return pod
}

// of are a job's deleted workers, the first one first.
func (deletions *deletions) of(job types.NamespacedName) []*corev1.Pod {
	deletions.mutex.Lock()
	defer deletions.mutex.Unlock()
	if known := deletions.seen[job]; known != nil {
		return slices.Clone(known.pods)
	}
	return nil
}

// forget is for a job that has ended, that shall have no pods, or that is gone.
func (deletions *deletions) forget(job types.NamespacedName) {
	deletions.mutex.Lock()
	defer deletions.mutex.Unlock()
	delete(deletions.seen, job)
}
