package gang

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// candidate is a backend that a cluster may have.
type candidate struct {
	name  job.Scheduler
	there bool
	// scheduler of pods that name none; empty leaves them as they are.
	scheduler string
	// of is the backend for pods of a scheduler.
	of func(scheduler string) Backend
	// remedy is what a cluster needs that lacks it.
	remedy string
}

// candidates are in the order in which they are taken. The first two are there
// because somebody installed them; the native one is an alpha that comes with
// Kubernetes.
func (a *Available) candidates() []candidate {
	return []candidate{
		{
			name: job.Coscheduling, there: a.Coscheduling, scheduler: a.coscheduler(),
			of:     func(scheduler string) Backend { return coscheduling{scheduler} },
			remedy: "install scheduler-plugins with its CRDs",
		},
		{
			name: job.Volcano, there: a.Volcano, scheduler: volcanoScheduler,
			of:     func(scheduler string) Backend { return volcano{scheduler} },
			remedy: "install Volcano",
		},
		{
			name: job.Native, there: a.Native,
			of:     func(scheduler string) Backend { return native{scheduler} },
			remedy: "run Kubernetes 1.36 with that API and the feature gates GenericWorkload and GangScheduling turned on",
		},
	}
}

// backend is the candidate for pods that name a scheduler, or, if it is empty,
// do not.
func (c *candidate) backend(scheduler string) Backend {
	if scheduler == "" {
		scheduler = c.scheduler
	}
	return c.of(scheduler)
}

// api is what a cluster serves that has it.
func (c *candidate) api() string {
	kind := c.of("").GroupKind()
	return fmt.Sprintf("%s of %s", kind.Kind, kind.GroupVersion())
}

// GroupKinds are the kinds of groups that a cluster may have, whichever of them it
// serves.
func GroupKinds() (kinds []schema.GroupVersionKind) {
	for _, candidate := range (&Available{}).candidates() {
		kinds = append(kinds, candidate.of("").GroupKind())
	}
	return kinds
}
