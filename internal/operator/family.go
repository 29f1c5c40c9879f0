package operator

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/internal/diagnosis"
	"github.com/trireme-mpi/trireme/internal/job"
)

// workload is a JobSet or a Job as it is seen. That of an earlier job of the same
// name does not exist for this one, and is known.
type workload struct {
	diagnosis.Workload
	uid types.UID
}

func newWorkload(object client.Object, suspend *bool) workload {
	return workload{Workload: diagnosis.Workload{Exists: true, Suspended: suspend != nil && *suspend}, uid: object.GetUID()}
}

// family tells what belongs to a job. Labels alone do not: an earlier job of the
// same name had the same, and anybody can copy them.
type family struct {
	// known are the job and those of its objects that make pods; false are others of
	// their names, of an earlier job.
	known map[types.UID]bool
	// since is when the job was created.
	since time.Time
	// saw notes what makes pods.
	saw func(maker types.UID, own bool)
}

// familyOf begins with what was known before. A fresh process has only times to go by
// for pods whose maker is gone, and they tell no more than the second.
func (reconciler *Reconciler) familyOf(object client.Object) family {
	uid := object.GetUID()
	known := reconciler.submitted.makersOf(uid)
	known[uid] = true
	return family{
		known: known, since: object.GetCreationTimestamp().Time,
		saw: func(maker types.UID, own bool) { reconciler.submitted.sawMaker(uid, maker, own) },
	}
}

func (family *family) add(found workload) diagnosis.Workload {
	if found.uid != "" {
		family.known[found.uid] = found.Exists
		family.saw(found.uid, found.Exists)
	}
	return found.Workload
}

// includes tells whether a pod or a Job with the job's labels is the job's.
func (family *family) includes(found client.Object) bool {
	owner := metav1.GetControllerOf(found)
	switch {
	case owner == nil:
		return false
	case family.knows(found):
		return true
	case family.isEarlier(found):
		return false
	case owner.Kind == "Job" || owner.Kind == "JobSet":
		// What made it is gone. It is what is left of an earlier start of the job, or
		// else of an earlier job of its name.
		return found.GetCreationTimestamp().After(family.since)
	default:
		return false
	}
}

// knows tells whether it is known what made a pod or a Job.
func (family *family) knows(found client.Object) bool {
	owner := metav1.GetControllerOf(found)
	return owner != nil && (family.known[owner.UID] || family.known[types.UID(found.GetLabels()[jobset.JobSetUIDKey])])
}

// isEarlier tells whether what made a pod is known to be an earlier job's of the name:
// it may have made the pod after the job was created.
func (family *family) isEarlier(found client.Object) bool {
	own, known := family.known[metav1.GetControllerOf(found).UID]
	if set := types.UID(found.GetLabels()[jobset.JobSetUIDKey]); set != "" && !known {
		own, known = family.known[set]
	}
	return known && !own
}

// isOfEarlierStart tells whether a pod was made for a JobSet that another one has
// followed: of a job that is suspended and resumed within a moment, the Job controller
// may make a pod when the JobSet is gone and its Jobs are not yet.
func isOfEarlierStart(pod *corev1.Pod, current workload) bool {
	set := types.UID(pod.Labels[jobset.JobSetUIDKey])
	return current.Exists && set != "" && set != current.uid
}

// isForeign tells whether a pod of a Job that nobody knows is that of somebody else's:
// anybody can run a Job whose pods have a job's labels. Ours have an owner, also those
// that are left of an earlier start. That of an earlier job of the name is remembered:
// its pods outlive it, and it may have made them after the job was created.
func (reconciler *Reconciler) isForeign(ctx context.Context, made *job.Job, family *family, pod *corev1.Pod) (bool, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" {
		return false, nil
	}
	maker := &batchv1.Job{}
	if err := reconciler.Live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, maker); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if maker.UID != owner.UID {
		return false, nil
	}
	if isLeftover(maker, made) {
		family.saw(maker.UID, false)
		return true, nil
	}
	return metav1.GetControllerOf(maker) == nil, nil
}
