package operator

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/diagnosis"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/plan"
)

// +kubebuilder:rbac:groups=scheduling.x-k8s.io,resources=podgroups,verbs=patch

const (
	// nudgePeriod is how often a scheduler that forgets a gang is reminded of it.
	nudgePeriod = 15 * time.Second
	// nudgedAnnotation is when that was done last.
	nudgedAnnotation = "training.kubeflow.org/asked-again-at"
)

// nudge has scheduler-plugins look again at a gang that it has turned down: by
// itself it does so when a PodGroup changes, and otherwise only after about five
// minutes, whatever room there is meanwhile.
func (reconciler *Reconciler) nudge(ctx context.Context, made *job.Job, seen diagnosis.Observed, verdict *diagnosis.Verdict, in around) error {
	waits := verdict.Stage == plan.Active && !verdict.Gang.Yes && !verdict.Suspension.Yes && seen.Workload.Exists
	if !waits || in.Gang == nil || in.Gang.Name() != job.Coscheduling {
		return nil
	}
	if verdict.NextCheck == 0 || verdict.NextCheck > nudgePeriod {
		verdict.NextCheck = nudgePeriod
	}
	now := reconciler.Clock.Now()
	if !reconciler.submitted.isDue(made.UID, now, nudgePeriod) {
		return nil
	}
	group := in.Gang.Group(made, nil)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, nudgedAnnotation, now.UTC().Format(time.RFC3339))
	if err := reconciler.Patch(ctx, group, client.RawPatch(types.MergePatchType, []byte(patch))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remind the scheduler of PodGroup %s/%s: %w", made.Namespace, made.Name, err)
	}
	return nil
}
