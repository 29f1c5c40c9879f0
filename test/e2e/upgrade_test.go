// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// patient waits until it is told to end. It sleeps meanwhile, which a barrier
// does not.
const patient = `
import os, time
from mpi4py import MPI
world = MPI.COMM_WORLD
world.Barrier()
if world.rank == 0:
    print("all ranks are up", flush=True)
    while not os.path.exists("/tmp/end"):
        time.sleep(0.2)
together = world.Ibarrier()
while not together.Test():
    time.sleep(0.2)
if world.rank == 0:
    print("all ranks were told to end", flush=True)
`

// startPatient starts a job of each kind that runs until it is released.
func startPatient(t *testing.T) (jobs []*theJob) {
	t.Helper()
	for _, object := range both(2, patient) {
		jobs = append(jobs, submit(t, object))
	}
	for _, job := range jobs {
		job.waitForLog("all ranks are up")
	}
	return jobs
}

// release tells a job to end.
func (job *theJob) release() {
	job.t.Helper()
	// Rank 0, which looks for it, is on the first worker: that one is told last, because
	// the others may go with the job's end then.
	for _, pod := range slices.Backward(job.pods(training.RoleWorker)) {
		kubectl(job.t, fmt.Sprintf("exec -n %s %s -- touch /tmp/end", job.namespace, pod.Name))
	}
}

// made is what an object was made as: another identity, another specification or
// another start would show.
type made struct {
	UID        types.UID
	Generation int64
	Restarts   int32
	Spec       any
}

// children are the pods of a job and what makes them.
func (job *theJob) children() map[string]made {
	job.t.Helper()
	found := map[string]made{}
	for _, pod := range job.pods("") {
		child := made{UID: pod.UID, Generation: pod.Generation, Spec: pod.Spec}
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			child.Restarts += status.RestartCount
		}
		found["Pod "+pod.Name] = child
	}
	var batchJobs batchv1.JobList
	var sets jobset.JobSetList
	for _, list := range []client.ObjectList{&batchJobs, &sets} {
		if err := job.client.List(job.t.Context(), list, client.InNamespace(job.namespace)); err != nil {
			job.t.Fatal(err)
		}
	}
	for _, batch := range batchJobs.Items {
		found["Job "+batch.Name] = made{UID: batch.UID, Generation: batch.Generation, Spec: batch.Spec}
	}
	for _, set := range sets.Items {
		found["JobSet "+set.Name] = made{UID: set.UID, Generation: set.Generation, Spec: set.Spec}
	}
	return found
}

func operatorImage(t *testing.T) string {
	t.Helper()
	return kubectl(t, "get deployment/trireme-operator -n trireme-system -o jsonpath='{.spec.template.spec.containers[0].image}'")
}

// install builds and installs what is in the repository, with variables of the
// environment.
func install(t *testing.T, environment string) {
	t.Helper()
	needsLocalCluster(t, "Trireme is installed again")
	if output, err := shell(environment + " make install"); err != nil {
		t.Fatalf("install: %v\n%s", err, output)
	}
}

// Jobs that run do not notice that the operator is replaced by a newer one: it
// neither makes their pods anew nor touches them, and sees them to their end.
func TestTheOperatorIsUpgraded(t *testing.T) {
	if !isThorough() {
		t.Skip("test/install upgrades the chart while a job runs: make test-all runs it")
	}
	old := operatorImage(t)
	jobs := startPatient(t)
	before := map[*theJob]map[string]made{}
	for _, job := range jobs {
		before[job] = job.children()
	}
	t.Cleanup(func() { install(t, "") })
	start := time.Now()
	install(t, fmt.Sprintf("VERSION=newer%d", time.Now().Unix()))
	t.Logf("replaced within %s", time.Since(start).Round(time.Second))
	if now := operatorImage(t); now == old {
		t.Fatalf("the operator is %s as before", now)
	}
	untilOneLeads(t)
	for _, job := range jobs {
		if diff := cmp.Diff(before[job], job.children()); diff != "" {
			t.Errorf("the newer operator has changed %T (- before, + after):\n%s", job.object, diff)
		}
		job.release()
		wantUnharmed(job, before[job])
	}
}

// untilOneLeads waits until a pod that is there holds the Lease, and has had time
// to look at all jobs.
func untilOneLeads(t *testing.T) {
	t.Helper()
	eventually.Succeeds(t, "a replica leads", func() error {
		holder := kubectl(t, "get lease trireme-leader -n trireme-system -o jsonpath='{.spec.holderIdentity}'")
		pod, _, _ := strings.Cut(holder, "_")
		if output, err := shell("bin/cluster kubectl get pod -n trireme-system " + pod); err != nil || pod == "" {
			return fmt.Errorf("it is %q: %s", holder, output)
		}
		return nil
	})
	time.Sleep(5 * time.Second)
}

// wantUnharmed waits for a good end, and fails unless the launcher is the one that
// was started first.
func wantUnharmed(job *theJob, before map[string]made) {
	job.t.Helper()
	job.succeeds()
	if log := job.log(); !strings.Contains(log, "all ranks were told to end") {
		job.t.Errorf("the launcher says:\n%s", log)
	}
	for _, pod := range job.pods(training.RoleLauncher) {
		was, known := before["Pod "+pod.Name]
		if ended := terminated(&pod); !known || was.UID != pod.UID || ended == nil || ended.ExitCode != 0 || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			job.t.Errorf("pod %s has started anew or has not ended well\n%s", pod.Name, job.describe())
		}
	}
}

// Nobody leads and nobody answers when the jobs end: whoever comes next finds
// out.
func TestBothReplicasAreKilled(t *testing.T) {
	jobs := startPatient(t)
	before := map[*theJob]map[string]made{}
	for _, job := range jobs {
		before[job] = job.children()
	}
	kubectl(t, "delete pod -n trireme-system -l app.kubernetes.io/component=operator --force --grace-period=0")
	killed := time.Now()
	for _, job := range jobs {
		job.release()
	}
	for _, job := range jobs {
		wantUnharmed(job, before[job])
	}
	t.Logf("both jobs had ended %s after the replicas were killed", time.Since(killed).Round(time.Millisecond))
	kubectl(t, "rollout status deployment/trireme-operator -n trireme-system --timeout=120s")
}
