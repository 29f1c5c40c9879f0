// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=get;list;watch;create;delete

// scope holds what is known of a job during one reconcile.
type scope struct {
	object   client.Object
	job      *job.Job
	previous diagnosis.Previous
	observed diagnosis.Observed
	// workload is the Job or JobSet of the pods; nil if it does not exist.
	workload client.Object
	// leftovers are launchers of an earlier workload, or of an earlier job of the same
	// name, that still have their finalizer.
	leftovers []*corev1.Pod
	// addresses are the job's EndpointSlices.
	addresses []*discoveryv1.EndpointSlice
	env       environment
}

// gather reads the objects of a job from the cache.
func (r *Reconciler) gather(ctx context.Context, scope *scope) error {
	if err := r.gatherFrom(ctx, r.Client, scope, partsOf(scope.job)); err != nil {
		return err
	}
	if err := r.gatherAddresses(ctx, scope); err != nil {
		return err
	}
	if scope.previous.QuotaWait == nil {
		return nil
	}
	older, err := r.olderWaits(ctx, scope)
	scope.observed.OlderWaits = older
	return err
}

// gatherFrom reads from the cache or from the API server. Options select pods by an
// index, which is faster than by labels.
func (r *Reconciler) gatherFrom(ctx context.Context, reader client.Reader, scope *scope, options ...client.ListOption) error {
	j := scope.job
	observed := &scope.observed
	observed.Now, observed.Timeouts = r.Clock.Now(), r.Timeouts
	if err := r.gatherWorkload(ctx, reader, scope); err != nil {
		return err
	}
	var pods corev1.PodList
	options = append(options, client.InNamespace(j.Namespace), client.MatchingLabels(plan.Selector(j)))
	if err := reader.List(ctx, &pods, options...); err != nil {
		return fmt.Errorf("list the pods of %s %s/%s: %w", j.Kind, j.Namespace, j.Name, err)
	}
	observed.Launchers, observed.Workers, observed.Initializers, scope.leftovers = nil, nil, nil, nil
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !scope.owns(pod) {
			if hasFinalizer(pod) {
				scope.leftovers = append(scope.leftovers, pod)
			}
			continue
		}
		switch pod.Labels[training.LabelReplicaType] {
		case training.RoleLauncher:
			observed.Launchers = append(observed.Launchers, pod)
		case training.RoleWorker:
			observed.Workers = append(observed.Workers, pod)
		case training.RoleInitializer:
			observed.Initializers = append(observed.Initializers, pod)
		}
	}
	return nil
}

// gatherWorkload reads the workload of a job. A queue may have edited its templates:
// pods are created from those.
func (r *Reconciler) gatherWorkload(ctx context.Context, reader client.Reader, scope *scope) error {
	scope.workload, scope.observed.Workload = nil, diagnosis.Workload{}
	if !r.kind.hasWorkloads() {
		return nil
	}
	if scope.job.Kind.Traits().IsWorkload {
		scope.useWorkload(r.kind, scope.object)
		return nil
	}
	workload := r.kind.emptyWorkload()
	key := client.ObjectKey{Namespace: scope.job.Namespace, Name: plan.NamesOf(scope.job).Workload}
	err := reader.Get(ctx, key, workload)
	if err == nil {
		err = partial.Complete(ctx, r.Live, workload)
	}
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if isOwned(workload, scope.job) && r.kind.managerOf(workload) == training.ManagedByTrireme {
		scope.useWorkload(r.kind, r.memory.writes.newest(writtenKey{job: scope.job.UID, isWorkload: true}, workload))
	}
	return nil
}

// useWorkload makes the templates of a workload those of the job.
func (s *scope) useWorkload(kind kind, workload client.Object) {
	s.workload = workload
	s.observed.Workload = diagnosis.Workload{Exists: true, Suspended: kind.isSuspended(workload)}
	kind.adopt(s.job, workload)
}

// owns reports whether a pod with the job's labels belongs to the job. Labels alone do
// not prove it: an earlier job of the same name has the same, and any user can set them.
func (s *scope) owns(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return false
	case owner.UID == s.job.UID:
		return true
	case s.workload != nil:
		// Pods of an earlier start have another workload.
		return owner.UID == s.workload.GetUID()
	}
	return owner.Kind == string(s.job.Kind.Traits().Workload) && owner.Name == plan.NamesOf(s.job).Workload &&
		pod.Labels[training.LabelJobUID] == string(s.job.UID)
}

func isOwned(object client.Object, j *job.Job) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == j.UID
}

// olderWaits reports whether an older job of the namespace waits for the same quota.
func (r *Reconciler) olderWaits(ctx context.Context, scope *scope) (bool, error) {
	for _, kind := range r.kinds {
		list := kind.emptyList()
		options := []client.ListOption{client.InNamespace(scope.job.Namespace)}
		switch {
		case !kind.name().Traits().IsWorkload:
			options = append(options, client.MatchingFields{waitsForQuota: isWaiting})
		case !kind.hasWorkloads():
			// The cluster does not serve this kind. An index of it could not be created.
			continue
		}
		err := r.List(ctx, list, options...)
		if err != nil {
			return false, fmt.Errorf("list the %ss that wait for a quota: %w", kind.name(), err)
		}
		for _, other := range kind.items(list) {
			previous := kind.previous(other)
			if kind.isForeign(other) {
				continue
			}
			if other.GetUID() != scope.job.UID && !previous.Finished() && other.GetDeletionTimestamp() == nil &&
				isSameQuota(scope.previous.QuotaWait, previous.QuotaWait) && isOlder(other, scope.object) {
				return true, nil
			}
		}
	}
	return false, nil
}

func isSameQuota(one, other *training.QuotaWait) bool {
	return one != nil && other != nil && (one.Name == other.Name || one.Name == "" || other.Name == "")
}

func isOlder(one, other client.Object) bool {
	created, otherCreated := one.GetCreationTimestamp(), other.GetCreationTimestamp()
	if !created.Equal(&otherCreated) {
		return created.Before(&otherCreated)
	}
	return one.GetUID() < other.GetUID()
}

// confirm reads the objects of a job again, from the API server.
func (r *Reconciler) confirm(ctx context.Context, scope *scope) error {
	j := scope.job
	current := r.kind.empty()
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(scope.object), current)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s %s/%s again: %w", j.Kind, j.Namespace, j.Name, err)
	}
	if err != nil || current.GetUID() != j.UID || current.GetGeneration() != scope.object.GetGeneration() || current.GetDeletionTimestamp() != nil {
		return apierrors.NewConflict(groupResource(j), j.Name, fmt.Errorf("the job has changed"))
	}
	scope.observed.Confirmed = true
	return r.gatherFrom(ctx, r.Live, scope)
}
