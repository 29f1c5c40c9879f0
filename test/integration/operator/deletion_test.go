// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// deleted deletes a job, and waits until the operator makes nothing more of it.
// Without a garbage collector what was made stays: it must say whose it was.
func (place *place) deleted(jobs ...client.Object) {
	place.Helper()
	owners := map[string]bool{}
	for _, job := range jobs {
		place.Delete(job)
		owners[string(job.GetUID())] = true
	}
	var before int
	place.Eventually("nothing more is made", func() error {
		now := len(place.objects())
		defer func() { before = now }()
		if now != before {
			return fmt.Errorf("there are %d objects, and were %d", now, before)
		}
		return nil
	})
	place.stays("nothing is made of jobs that are gone", func() error {
		objects := place.objects()
		for _, object := range objects {
			if object.Kind == "Job" || object.Kind == "JobSet" {
				owners[string(object.UID)] = true
			}
		}
		for name, object := range objects {
			if len(object.OwnerReferences) != 1 || !owners[string(object.OwnerReferences[0].UID)] {
				return fmt.Errorf("%s belongs to %v", name, object.OwnerReferences)
			}
		}
		if len(objects) != before {
			return fmt.Errorf("there are %d objects, and were %d", len(objects), before)
		}
		return nil
	})
	place.Eventually("no pod waits for the operator", func() error {
		for name, object := range place.objects() {
			if len(object.Finalizers) > 0 {
				return fmt.Errorf("%s has the finalizers %v", name, object.Finalizers)
			}
		}
		return nil
	})
}

func TestDeletedRightAfterItsCreation(t *testing.T) {
	place := parallel(t)
	place.Create(runtime("mpi"))
	place.createEventually(trainJob("", "first"))
	var jobs []client.Object
	for i := range 10 {
		for _, job := range []client.Object{mpiJob(fmt.Sprintf("mpi-%d", i)), trainJob("", fmt.Sprintf("train-%d", i))} {
			place.Create(job)
			place.Delete(job)
			jobs = append(jobs, job)
		}
	}
	first := trainJob("", "first")
	if err := place.Get(first, "first"); err != nil {
		t.Fatal(err)
	}
	place.deleted(append(jobs, first)...)
}

func TestDeletedWhileItsPodsAreCreated(t *testing.T) {
	place := parallel(t)
	job := mpiJob("train", func(job *v2beta1.MPIJob) {
		job.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Replicas = new(int32(60))
	})
	place.Create(job)
	place.Eventually("a worker is there", func() error {
		if len(place.PodsOf(job, training.RoleWorker)) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	place.deleted(job)
}

func TestDeletedWhenItRunsOrIsFinished(t *testing.T) {
	t.Parallel()
	for _, finished := range []bool{false, true} {
		t.Run(fmt.Sprintf("finished %t", finished), func(t *testing.T) {
			bothKinds(t, func(place *place, job client.Object) {
				place.createEventually(job)
				launcher, _ := place.runs(job)
				if finished {
					place.Exit(launcher, 0, report("", 2))
					place.untilPhase(job, training.PhaseSucceeded)
				}
				place.deleted(job)
			})
		})
	}
}

// A job that is created again under the name of one that was just deleted waits
// until what was that one's is gone.
func TestCreatedAgain(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(place *place, job client.Object) {
		place.createEventually(job)
		launcher, workers := place.runs(job)
		old := job.GetUID()
		leftovers := place.objects()
		place.Delete(job)
		again := job.DeepCopyObject().(client.Object)
		again.SetUID("")
		again.SetResourceVersion("")
		place.Create(again)
		place.stays("it waits", func() error {
			if err := place.Get(again, again.GetName()); err != nil || progressOf(again).Phase == training.PhaseFailed {
				return fmt.Errorf("it has failed (%v): %s", err, progressOf(again).FailureMessage)
			}
			return nil
		})
		condition := "TrainingComplete"
		if isMPIJob(again) {
			condition = "Pending"
		}
		place.Until("it says what it waits for", again, func() error {
			if answer, message := conditionOf(again, condition); !strings.HasSuffix(answer, " WaitingForDeletion") || !strings.Contains(message, "to an earlier job of the same name") {
				return fmt.Errorf("it says %q: %s", answer, message)
			}
			return nil
		})
		// The garbage collector deletes what was the old one's, and kubelets end its pods.
		for name, object := range leftovers {
			if object.Kind == "ControllerRevision" {
				// Both jobs have the same runtime.
				continue
			}
			if object.Kind != "Pod" {
				place.Delete(object, client.PropagationPolicy(metav1.DeletePropagationBackground))
			}
			if len(object.OwnerReferences) != 1 {
				place.Errorf("%s has the owners %v", name, object.OwnerReferences)
			}
		}
		for _, pod := range append(workers, launcher) {
			place.SetStatus(pod, func(status *corev1.PodStatus) { status.Phase = corev1.PodFailed })
		}
		place.Remove(append(workers, launcher)...)
		place.runs(again)
		for name, object := range place.objects() {
			if slices.ContainsFunc(object.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == old }) {
				place.Errorf("%s belongs to the job that is gone", name)
			}
		}
	})
}

// A finished job goes when its time is over.
func TestTimeToLive(t *testing.T) {
	place := parallel(t)
	job := mpiJob("train", func(job *v2beta1.MPIJob) { job.Spec.RunPolicy.TTLSecondsAfterFinished = new(int32(5)) })
	place.Create(job)
	launcher, _ := place.runs(job)
	place.Exit(launcher, 0, report("", 2))
	place.Eventually("the job is gone", func() error {
		if err := place.client.Get(context.Background(), client.ObjectKeyFromObject(job), job); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is %s (%v)", job.Status.Phase, err)
		}
		return nil
	})
	if job.Status.Phase != training.PhaseSucceeded {
		t.Errorf("it went as %s", job.Status.Phase)
	}
}
