// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// runs makes a lab's operator run a share of the MPIJobs, as after a restart with
// another configuration.
func (l *lab) runs(share job.Share) {
	kind := mpiJobs{config.Default().JobDefaults(), share}
	l.mpi.kind, l.mpi.memory = kind, memory{}
}

// A job without a name is not started, unless all are ours.
func TestForeignJobsAreNotStarted(t *testing.T) {
	for _, share := range []job.Share{job.ShareNew, job.ShareNamed} {
		lab := newLab(t, mpiJob("1"))
		lab.runs(share)
		lab.reconcile(lab.mpi, 0)
		if pods := lab.pods(); len(pods) > 0 {
			t.Errorf("with %s, there are %d pods of a job of mpi-operator", share, len(pods))
		}
		named := mpiJob("1")
		named.Spec.RunPolicy.ManagedBy = new(training.ManagedByTrireme)
		lab = newLab(t, named)
		lab.runs(share)
		lab.reconcile(lab.mpi, 0)
		if pods := lab.pods(); len(pods) == 0 {
			t.Errorf("with %s, a job with our name is not started", share)
		}
	}
}

// An operator that ran all jobs is replaced by one that does not, after it has created
// pods and before or after it has written the status.
func TestStartedJobsStayOurs(t *testing.T) {
	for name, reconciles := range map[string]int{"pods without a status": 1, "pods with a status": 20} {
		t.Run(name, func(t *testing.T) {
			lab := newLab(t, mpiJob("1"))
			for range reconciles {
				lab.reconcile(lab.mpi, time.Second)
			}
			var found v2beta1.MPIJob
			lab.get(&found, "train")
			if hasStatus := found.Status.Phase != ""; hasStatus != (reconciles > 1) || len(lab.pods()) == 0 {
				t.Fatalf("there are %d pods, and the phase is %q", len(lab.pods()), found.Status.Phase)
			}
			lab.runs(job.ShareNamed)
			// Each reconcile asks for the next one until the name is written, as nothing else
			// may happen to the job.
			for range 5 {
				if result := lab.reconcile(lab.mpi, time.Second); result.RequeueAfter == 0 {
					break
				}
			}
			lab.get(&found, "train")
			if found.Status.Phase == "" || found.Spec.RunPolicy.ManagedBy == nil || *found.Spec.RunPolicy.ManagedBy != training.ManagedByTrireme {
				t.Errorf("the phase is %q, and managedBy is %v", found.Status.Phase, found.Spec.RunPolicy.ManagedBy)
			}
		})
	}
}
