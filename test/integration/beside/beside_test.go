// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

const byMPIOperator = v2beta1.ManagedByMPIOperator

// The whole way: beside mpi-operator with its running job, instead of it, and back. At
// no time do both operators create objects for one job.
func TestBesideAndBack(t *testing.T) {
	cluster := startCluster(t)
	stopPeer := cluster.startPeer(t)
	old := cluster.job("old")
	cluster.runBy(mpiOperator, old)
	before := old.DeepCopy()

	// Install beside it: what exists stays as it is, what is new is ours.
	cluster.install(t, job.ShareNew)
	fresh := cluster.job("fresh")
	if got := fresh.Spec.RunPolicy.ManagedBy; got == nil || *got != training.ManagedByTrireme {
		t.Errorf("a new job has managedBy %v", got)
	}
	wish := cluster.job("wish", managedBy(byMPIOperator), func(job *v2beta1.MPIJob) { job.Spec.SlotsPerWorker = new(int32(99)) })
	if len(wish.Labels)+len(wish.Annotations) > 0 {
		t.Errorf("a job of mpi-operator has the labels %v and the annotations %v", wish.Labels, wish.Annotations)
	}
	cluster.onlyRunBy(trireme, fresh)
	cluster.onlyRunBy(mpiOperator, old, wish)
	if diff := cmp.Diff(before.Spec, old.Spec); diff != "" {
		t.Errorf("a running job of mpi-operator was changed (-before +after):\n%s", diff)
	}
	if audited := cluster.operator.Audit.About(t, "wish"); len(audited) > 0 {
		t.Errorf("a job of mpi-operator is audited: %v", audited)
	}
	cluster.wantRefusedHandover(t, old)
	cluster.withoutWebhook(t)

	// A client that sends the manifest again does not take our name away.
	eventually.Succeeds(t, "the manifest is sent again", func() error {
		cluster.MustGet(fresh, fresh.Name)
		again := player.MPIJob(fresh.Name)
		again.Namespace, again.ResourceVersion, again.Labels = fresh.Namespace, fresh.ResourceVersion, fresh.Labels
		return cluster.admin.Update(t.Context(), again)
	})
	if err := cluster.hasOurName(fresh); err != nil {
		t.Error(err)
	}

	// Only those that ask for it.
	cluster.install(t, job.ShareNamed)
	plain, asked := cluster.job("plain"), cluster.job("asked", managedBy(training.ManagedByTrireme))
	cluster.onlyRunBy(mpiOperator, plain, old)
	cluster.onlyRunBy(trireme, asked, fresh)

	// Take over.
	for _, theirs := range []*v2beta1.MPIJob{old, wish, plain} {
		cluster.Delete(theirs)
	}
	cluster.deleteAllIn(t, unadmitted)
	stopPeer()
	cluster.install(t, job.ShareAll)
	ours, done := cluster.job("ours"), cluster.job("done", func(job *v2beta1.MPIJob) {
		job.Spec.RunPolicy.CleanPodPolicy = new(training.CleanPodPolicyRunning)
	})
	cluster.runBy(trireme, ours, done, fresh, asked)
	if ours.Spec.RunPolicy.ManagedBy != nil {
		t.Errorf("with all jobs ours, a new job has managedBy %s", *ours.Spec.RunPolicy.ManagedBy)
	}
	cluster.finish(done)

	// Go back: our jobs get our name before mpi-operator starts.
	cluster.install(t, job.ShareNew)
	for _, one := range []*v2beta1.MPIJob{ours, done} {
		eventually.Succeeds(t, "our name is in "+one.Name, func() error { return cluster.hasOurName(one) })
	}
	stored := done.DeepCopy()
	cluster.startPeer(t)
	cluster.install(t, job.ShareNamed)
	later := cluster.job("later")
	cluster.onlyRunBy(mpiOperator, later)
	cluster.onlyRunBy(trireme, ours, fresh, asked)
	cluster.MustGet(done, done.Name)
	if diff := cmp.Diff(stored.Status.Conditions, done.Status.Conditions); diff != "" || done.Status.Phase != training.PhaseSucceeded {
		t.Errorf("the status of a finished job has changed, its phase is %q (-before +after):\n%s", done.Status.Phase, diff)
	}
}

// wantRefusedHandover tries to make a job of mpi-operator ours while it is running.
func (cluster *cluster) wantRefusedHandover(t *testing.T, theirs *v2beta1.MPIJob) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runPolicy":{"managedBy":"`+training.ManagedByTrireme+`"}}}`))
	hidden := cluster.job("hidden", in(unadmitted))
	cluster.runBy(mpiOperator, hidden)
	for _, one := range []*v2beta1.MPIJob{theirs, hidden} {
		if err := cluster.admin.Patch(t.Context(), one.DeepCopy(), patch); err == nil || !strings.Contains(err.Error(), "immutable") {
			t.Errorf("job %s of mpi-operator gets our name: %v", one.Name, err)
		}
	}
	cluster.onlyRunBy(mpiOperator, hidden)
}

// withoutWebhook: while Trireme does not answer, jobs of mpi-operator are created, and no
// job is stored that both or neither would run.
func (cluster *cluster) withoutWebhook(t *testing.T) {
	t.Helper()
	cluster.operator.Stop(t)
	unnamed := player.MPIJob("unnamed")
	unnamed.Namespace = "default"
	if err := cluster.admin.Create(t.Context(), unnamed); err == nil {
		t.Error("a job without a name was stored while no webhook could name it")
	}
	named, unseen := cluster.job("named", managedBy(byMPIOperator)), cluster.job("unseen", in(unadmitted))
	cluster.runBy(mpiOperator, named, unseen)
	cluster.operator = nil
	cluster.install(t, job.ShareNew)
	cluster.onlyRunBy(mpiOperator, named, unseen)
	cluster.Delete(named)
}

func (cluster *cluster) deleteAllIn(t *testing.T, namespace string) {
	t.Helper()
	if err := cluster.admin.DeleteAllOf(t.Context(), &v2beta1.MPIJob{}, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
}

// finish plays the kubelets of a job until it has succeeded.
func (cluster *cluster) finish(one *v2beta1.MPIJob) {
	cluster.Helper()
	launcher, workers := cluster.UntilPods(one)
	cluster.Assign(append(workers, launcher)...)
	cluster.StartContainers(append(workers, launcher)...)
	cluster.Ready(workers...)
	cluster.Exit(launcher, 0, player.Report("", 2))
	cluster.Eventually(one.Name+" has succeeded", func() error {
		if err := cluster.Get(one, one.Name); err != nil {
			return err
		}
		if one.Status.Phase != training.PhaseSucceeded {
			return errPhase(one.Status.Phase)
		}
		return nil
	})
}

type errPhase training.Phase

func (phase errPhase) Error() string { return "the phase is " + string(phase) }

type errManagedBy string

func (managedBy errManagedBy) Error() string { return "managedBy is " + string(managedBy) }

func (cluster *cluster) hasOurName(one *v2beta1.MPIJob) error {
	if err := cluster.admin.Get(context.Background(), client.ObjectKeyFromObject(one), one); err != nil {
		return err
	}
	if managedBy := one.Spec.RunPolicy.ManagedBy; managedBy == nil || *managedBy != training.ManagedByTrireme {
		return errManagedBy("missing")
	}
	return nil
}
