// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// +kubebuilder:rbac:groups=batch,resources=jobs/status,verbs=update
// +kubebuilder:rbac:groups=batch,resources=jobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets/status;jobsets/finalizers,verbs=update

// writeWorkloadStatus writes the status of the job into its workload, where queues
// read it.
func (r *Reconciler) writeWorkloadStatus(ctx context.Context, scope *scope, verdict *diagnosis.Verdict) error {
	if scope.workload == nil || scope.workload.GetDeletionTimestamp() != nil {
		return nil
	}
	changed := scope.workload.DeepCopyObject().(client.Object)
	r.kind.setWorkloadStatus(changed, scope.job, verdict, metav1.NewTime(r.Clock.Now()))
	if apiequality.Semantic.DeepEqual(scope.workload, changed) {
		return nil
	}
	if err := r.Status().Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of %s: %w", describe(r.Scheme(), changed), err)
	}
	// A job that is its own workload is one object, and remembered as the job.
	r.memory.writes.add(writtenKey{job: scope.job.UID, isWorkload: !scope.job.Kind.Traits().IsWorkload}, changed)
	return nil
}

// release removes the finalizer of launchers whose result is in the job's status.
func (r *Reconciler) release(ctx context.Context, pods []*corev1.Pod) error {
	for _, pod := range pods {
		patch := fmt.Sprintf(`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, pod.UID, training.FinalizerLauncher)
		target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		err := r.Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove the finalizer of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// releaseLeftovers removes the finalizer of launchers whose workload does not exist any
// more, or is being deleted. Their result is not needed, but their names may be.
func (r *Reconciler) releaseLeftovers(ctx context.Context, j *job.Job, pods []*corev1.Pod) error {
	if len(pods) == 0 {
		return nil
	}
	var present types.UID
	if r.kind.hasWorkloads() {
		workload := r.kind.emptyWorkload()
		key := client.ObjectKey{Namespace: j.Namespace, Name: plan.NamesOf(j).Workload}
		err := r.Live.Get(ctx, key, workload)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read %s %s: %w", j.Kind.Traits().Workload, key, err)
		}
		if workload.GetDeletionTimestamp() == nil {
			present = workload.GetUID()
		}
	}
	return r.release(ctx, slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		owner := metav1.GetControllerOf(pod)
		return owner != nil && owner.UID == present
	}))
}

func hasFinalizer(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, training.FinalizerLauncher)
}

// releaseAll removes the finalizer of the launchers of a job that is being deleted, or
// was deleted.
func (r *Reconciler) releaseAll(ctx context.Context, key client.ObjectKey) error {
	deleted := &job.Job{Kind: r.kind.name(), Namespace: key.Namespace, Name: key.Name}
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.InNamespace(key.Namespace), partsOf(deleted)); err != nil {
		return fmt.Errorf("list the pods of deleted %s %s: %w", deleted.Kind, key, err)
	}
	state := plan.State{Stage: plan.Finished}
	for i := range pods.Items {
		state.Launchers = append(state.Launchers, &pods.Items[i])
	}
	released := plan.Released(state)
	if len(released) == 0 {
		return nil
	}
	// A new job may have pods before the cache shows it.
	current := r.kind.empty()
	err := r.Live.Get(ctx, key, current)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s %s: %w", deleted.Kind, key, err)
	}
	if err == nil && current.GetDeletionTimestamp() == nil {
		return nil
	}
	return r.release(ctx, released)
}
