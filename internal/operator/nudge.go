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
	// nudgePeriod is how often a scheduler that forgets a gang is reminded of it.
	nudgePeriod = 15 * time.Second
	// nudgedAnnotation is when that was done last.
	nudgedAnnotation = "training.kubeflow.org/asked-again-at"
)

// nudge looks after a gang that waits. scheduler-plugins looks again at one that it
// has turned down when its PodGroup changes, and otherwise only after about five
// minutes, whatever room there is meanwhile. A PodGroup that is gone, because a job
// was suspended and resumed within a moment or because somebody deleted it, is made
// anew: pods wait for it for ever.
func (r *Reconciler) nudge(ctx context.Context, scope *scope, verdict *diagnosis.Verdict) error {
	j, env := scope.job, scope.env
	waits := verdict.Stage == plan.Active && !verdict.Gang.Yes && !verdict.Suspension.Yes && scope.observed.Workload.Exists
	if !waits || env.Gang == nil || env.Gang.Group(j, nil) == nil {
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
		return fmt.Errorf("remind the scheduler of PodGroup %s/%s: %w", j.Namespace, j.Name, err)
	}
	return nil
}
