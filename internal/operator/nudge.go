// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// +kubebuilder:rbac:groups=scheduling.x-k8s.io,resources=podgroups,verbs=patch

const (
	// nudgePeriod is how often the PodGroup of a waiting gang is checked.
	nudgePeriod = 15 * time.Second
	// nudgedAnnotation is the time of the last change that makes the scheduler try again.
	nudgedAnnotation = "training.kubeflow.org/asked-again-at"
)

// nudge keeps a waiting gang schedulable. scheduler-plugins retries a rejected gang when
// its PodGroup changes, and otherwise only after about five minutes, even if capacity is
// free before. A missing PodGroup is created again, because its pods would wait forever:
// a user may have deleted it, or the job was suspended and resumed at once.
func (r *Reconciler) nudge(ctx context.Context, scope *scope, verdict *diagnosis.Verdict) error {
	j, env := scope.job, scope.env
	isWaiting := verdict.Stage == plan.Active && !verdict.Gang.Yes && !verdict.Suspension.Yes && scope.observed.Workload.Exists
	if !isWaiting || env.Gang == nil || env.Gang.Group(j, nil) == nil {
		return nil
	}
	if verdict.NextCheck == 0 || verdict.NextCheck > nudgePeriod {
		verdict.NextCheck = nudgePeriod
	}
	now := r.Clock.Now()
	if !r.memory.nudges.isDue(j.UID, now, nudgePeriod) {
		return nil
	}
	group := env.Gang.Group(j, plan.Selector(j))
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(group), group.DeepCopyObject().(client.Object))
	switch {
	case apierrors.IsNotFound(err):
		group.SetOwnerReferences([]metav1.OwnerReference{plan.OwnerOf(j)})
		err = client.IgnoreAlreadyExists(r.Create(ctx, group))
	case err == nil && env.Gang.Name() == job.Coscheduling:
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, nudgedAnnotation, now.UTC().Format(time.RFC3339))
		err = client.IgnoreNotFound(r.Patch(ctx, group, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	if err != nil {
		return fmt.Errorf("update PodGroup %s/%s of a waiting gang: %w", j.Namespace, j.Name, err)
	}
	return nil
}
