// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// runs reports whether Trireme runs a job. The status of a job is written after its
// pods are created, so a job that looks foreign may have pods of ours: an operator that
// ran all jobs has started it just before this one.
func (r *Reconciler) runs(ctx context.Context, object client.Object) (bool, error) {
	if !r.kind.isForeign(object) {
		return true, nil
	}
	if !r.kind.mayBeUnrecorded(object) {
		return false, nil
	}
	scope := &scope{object: object, job: &job.Job{Kind: r.kind.name(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}}
	if err := r.gatherFrom(ctx, r.Client, scope, partsOf(scope.job)); err != nil {
		return false, err
	}
	return scope.workload != nil || countPods(scope.observed) > 0, nil
}

// namingPause is how long the operator waits before it retries to write its name. When it
// starts, its own webhook may not answer yet.
const namingPause = 2 * time.Second

// writeName names Trireme in a job that it has started, so that mpi-operator ignores the
// job. It returns the job as it is stored: a job without the name continues, too. The
// permission exists only while Trireme does not run all MPIJobs
// (charts/trireme/templates/operator/role.yaml).
func (r *Reconciler) writeName(ctx context.Context, object client.Object) client.Object {
	named := object.DeepCopyObject().(client.Object)
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"runPolicy":{"managedBy":%q}}}`, object.GetResourceVersion(), training.ManagedByTrireme)
	err := r.Patch(ctx, named, client.RawPatch(types.MergePatchType, []byte(patch)))
	if err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			ctrl.LoggerFrom(ctx).Info("runPolicy.managedBy cannot be set yet: do not start mpi-operator", "cause", err.Error())
		}
		return object
	}
	r.memory.writes.add(writtenKey{job: object.GetUID()}, named)
	return named
}
