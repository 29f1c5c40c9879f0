// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// largeMPIJob is one that the cache keeps without its spec.
func largeMPIJob() *v2beta1.MPIJob {
	job := mpiJob("job")
	worker := job.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]
	worker.Template.Spec.Containers = []corev1.Container{{Args: []string{strings.Repeat("x", 2*partial.Threshold)}}}
	return job
}

// A job without its spec would run without workers.
func TestPartialJobsAreRefused(t *testing.T) {
	lab := newLab(t)
	kept, _ := partial.Keep(largeMPIJob())
	if _, err := lab.mpi.reconcileObject(t.Context(), kept); err == nil || lab.created > 0 {
		t.Errorf("%d objects were created: %v", lab.created, err)
	}
}

// This includes jobs that do not exist there any more.
func TestPartialJobsAreReadFromTheAPIServer(t *testing.T) {
	job := largeMPIJob()
	kept, _ := partial.Keep(job.DeepCopy())
	cached, live := newLab(t, kept), newLab(t, job)
	cached.mpi.Live = live.api
	read, err := cached.mpi.read(t.Context(), client.ObjectKeyFromObject(job))
	if err != nil || partial.Is(read) || len(read.(*v2beta1.MPIJob).Spec.MPIReplicaSpecs) != 2 {
		t.Errorf("%v: %+v", err, read)
	}
	cached.mpi.Live = newLab(t).api
	if _, err := cached.mpi.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)}); err != nil || cached.created > 0 {
		t.Errorf("%d objects were created: %v", cached.created, err)
	}
}
