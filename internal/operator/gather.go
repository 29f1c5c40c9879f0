package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/diagnosis"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/plan"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=events,verbs=list;watch

// gather is what is seen of a job in the cache.
func (reconciler *Reconciler) gather(ctx context.Context, object client.Object, made *job.Job) (diagnosis.Observed, error) {
	return reconciler.gatherFrom(ctx, reconciler.Client, object, made, partsOf(made))
}

// gatherFrom looks where it is told; options say how a reader finds pods faster than by
// their labels.
func (reconciler *Reconciler) gatherFrom(ctx context.Context, reader client.Reader, object client.Object, made *job.Job, options ...client.ListOption) (diagnosis.Observed, error) {
	seen := diagnosis.Observed{
		Now: reconciler.Clock.Now(), ImagePatience: reconciler.ImagePatience,
		Deleted: reconciler.deletions.of(client.ObjectKeyFromObject(object)),
	}
	family := reconciler.familyOf(object)
	workload, err := reconciler.workload(ctx, reader, made)
	if err != nil {
		return seen, err
	}
	seen.Workload = family.add(workload)
	seen.Deleted = slices.DeleteFunc(seen.Deleted, func(pod *corev1.Pod) bool { return isOfEarlierStart(pod, workload) })
	if made.Initializer != nil {
		fetching, err := batchJob(ctx, reader, made, plan.NamesOf(made).Initializer)
		if err != nil {
			return seen, err
		}
		seen.Fetching = family.add(fetching)
	}
	var pods corev1.PodList
	options = append(options, client.InNamespace(made.Namespace), client.MatchingLabels(plan.Selector(made)))
	if err := reader.List(ctx, &pods, options...); err != nil {
		return seen, fmt.Errorf("list the pods of %s %s/%s: %w", made.Kind, made.Namespace, made.Name, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !family.includes(pod) || isOfEarlierStart(pod, workload) {
			continue
		}
		if !family.knows(pod) {
			foreign, err := reconciler.isForeign(ctx, made, &family, pod)
			if err != nil {
				return seen, fmt.Errorf("read the Job of pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
			if foreign {
				continue
			}
		}
		switch pod.Labels[training.LabelReplicaType] {
		case training.RoleLauncher:
			seen.Launchers = append(seen.Launchers, pod)
		case training.RoleWorker:
			seen.Workers = append(seen.Workers, pod)
		case training.RoleInitializer:
			seen.Initializers = append(seen.Initializers, pod)
		}
	}
	seen.Refusal, err = reconciler.refusedByEvents(ctx, made, &family)
	return seen, err
}

// workload is the JobSet of a TrainJob, or the launcher's Job of an MPIJob.
func (reconciler *Reconciler) workload(ctx context.Context, reader client.Reader, made *job.Job) (workload, error) {
	names := plan.NamesOf(made)
	if made.Kind == job.KindMPIJob {
		return batchJob(ctx, reader, made, names.Launcher)
	}
	if !reconciler.cluster.hasJobSet() {
		return workload{}, nil
	}
	set := &jobset.JobSet{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: made.Namespace, Name: names.JobSet}, set); err != nil {
		return workload{}, client.IgnoreNotFound(err)
	}
	if !isOwned(set, made) {
		return workload{uid: set.UID}, nil
	}
	found := newWorkload(set, set.Spec.Suspend)
	if complete := meta.FindStatusCondition(set.Status.Conditions, string(jobset.JobSetCompleted)); complete != nil && complete.Status == "True" {
		found.Complete = true
	}
	if failed := meta.FindStatusCondition(set.Status.Conditions, string(jobset.JobSetFailed)); failed != nil && failed.Status == "True" {
		found.Failed, found.FailedAt = failed.Message, failed.LastTransitionTime.Time
	}
	return found, nil
}

func batchJob(ctx context.Context, reader client.Reader, made *job.Job, name string) (workload, error) {
	batch := &batchv1.Job{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: made.Namespace, Name: name}, batch); err != nil {
		return workload{}, client.IgnoreNotFound(err)
	}
	if !isOwned(batch, made) {
		return workload{uid: batch.UID}, nil
	}
	found := newWorkload(batch, batch.Spec.Suspend)
	// One pod is all that our Jobs want. It may be gone before Kubernetes calls the Job
	// complete.
	found.Complete = batch.Status.Succeeded > 0
	for _, condition := range batch.Status.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete:
			found.Complete = true
		case condition.Type == batchv1.JobFailed:
			found.Failed, found.FailedAt = condition.Message, condition.LastTransitionTime.Time
		}
	}
	return found, nil
}

func isOwned(object client.Object, made *job.Job) bool {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller && owner.UID == made.UID {
			return true
		}
	}
	return false
}

// refusedByEvents finds a pod that the API server did not take from Kubernetes'
// own Job controller: it says so in an event and nowhere else.
func (reconciler *Reconciler) refusedByEvents(ctx context.Context, made *job.Job, family *family) (*diagnosis.Refusal, error) {
	var jobs batchv1.JobList
	if err := reconciler.List(ctx, &jobs, client.InNamespace(made.Namespace), partsOf(made)); err != nil {
		return nil, fmt.Errorf("list the Jobs of %s %s/%s: %w", made.Kind, made.Namespace, made.Name, err)
	}
	for i := range jobs.Items {
		batch := &jobs.Items[i]
		// Where pods were taken, those that are missing are on their way.
		if !family.includes(batch) || batch.Status.Active+batch.Status.Succeeded+batch.Status.Failed > 0 {
			continue
		}
		var refusals corev1.EventList
		if err := reconciler.List(ctx, &refusals, client.InNamespace(made.Namespace), client.MatchingFields{eventSubject: string(batch.UID)}); err != nil {
			return nil, fmt.Errorf("list the events of Job %s/%s: %w", made.Namespace, batch.Name, err)
		}
		for j := range refusals.Items {
			if found := refusal(refusals.Items[j].Message); found != nil && isCurrent(&refusals.Items[j], batch) {
				found.Object = fmt.Sprintf("A pod of Job %s", batch.Name)
				found.Role = roleOf(batch)
				return found, nil
			}
		}
	}
	return nil, nil
}

// isCurrent tells whether an event is about the Job's present start: one that a
// queue held back begins anew, under the same UID.
func isCurrent(event *corev1.Event, batch *batchv1.Job) bool {
	at := event.LastTimestamp.Time
	if event.EventTime.After(at) {
		at = event.EventTime.Time
	}
	if batch.Spec.Suspend != nil && *batch.Spec.Suspend {
		return false
	}
	return batch.Status.StartTime == nil || !at.Truncate(time.Second).Before(batch.Status.StartTime.Time)
}

// refusal reads the words of the API server. What may pass by itself, such as a
// webhook that does not answer, is none.
func refusal(message string) *diagnosis.Refusal {
	message = strings.TrimPrefix(message, "Error creating: ")
	if !strings.Contains(message, " is forbidden: ") && !strings.Contains(message, " is invalid: ") || lacksAccount(message) {
		return nil
	}
	return &diagnosis.Refusal{Message: message, Quota: strings.Contains(message, exceededQuota)}
}

// exceededQuota is how the API server begins to say that a quota is full.
const exceededQuota = "exceeded quota"

// lacksAccount tells whether a pod is refused for want of its service account: a
// new namespace has one a moment later.
func lacksAccount(message string) bool {
	return strings.Contains(message, "error looking up service account")
}

// lacksRight tells whether it is the operator that may not: that is not the job's
// fault.
func lacksRight(message string) bool { return strings.Contains(message, "cannot create resource") }

func roleOf(batch *batchv1.Job) string { return batch.Spec.Template.Labels[training.LabelReplicaType] }

// confirm looks again, past the cache, for what seems to be missing.
func (reconciler *Reconciler) confirm(ctx context.Context, object client.Object, made *job.Job, seen *diagnosis.Observed) error {
	current := reconciler.kind.empty()
	err := reconciler.Live.Get(ctx, client.ObjectKeyFromObject(object), current)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s %s/%s again: %w", made.Kind, made.Namespace, made.Name, err)
	}
	if err != nil || current.GetUID() != object.GetUID() || current.GetGeneration() != object.GetGeneration() || current.GetDeletionTimestamp() != nil {
		return apierrors.NewConflict(groupResource(made), made.Name, fmt.Errorf("it has changed meanwhile"))
	}
	found, err := reconciler.gatherFrom(ctx, reconciler.Live, object, made)
	if err != nil {
		return err
	}
	seen.Launchers, seen.Workers, seen.Workload, seen.Confirmed = found.Launchers, found.Workers, found.Workload, true
	return nil
}
