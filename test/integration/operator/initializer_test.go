// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// fetching makes a TrainJob fetch a dataset first.
func fetching(job *v2alpha1.TrainJob) {
	job.Spec.Initializer = &v2alpha1.Initializer{
		Dataset: &v2alpha1.Source{StorageURI: "s3://bucket/data"},
		Storage: &v2alpha1.InitializerStorage{Size: new(resources("storage", "10Gi")["storage"])},
	}
}

// A job that fetches something asks for nodes only when it has it.
func TestInitializer(t *testing.T) {
	place := parallel(t)
	place.Create(runtime("mpi"))
	job := trainJob("", "train", fetching)
	place.createEventually(job)
	before := []string{"ControllerRevision/trireme-runtime", "PersistentVolumeClaim/train-workspace", "Pod/train-initializer-r0"}
	wantOwned(t, job, "kubeflow.org/v2alpha1", "TrainJob", place.untilObjects(before...))
	place.Until("the job says what it does", job, func() error {
		return errors.Join(wantConditions(job, "TrainingComplete", "False Initializing"), wantSteps(progressOf(job), training.StepSubmitted))
	})
	claim := mustGet(place, &corev1.PersistentVolumeClaim{}, "train-workspace")
	if claim.Spec.AccessModes[0] != corev1.ReadWriteMany || claim.Spec.Resources.Requests.Storage().String() != "10Gi" {
		t.Errorf("the claim is %+v", claim.Spec)
	}
	place.stays("no node is asked for", func() error { return place.wantObjects(before...) })

	place.fetches(job)
	place.untilObjects(append(before[1:], trainJobObjects...)...)
	launcher, workers := place.runs(job)
	for _, pod := range append(workers, launcher) {
		mounts := fmt.Sprint(pod.Spec.Containers[0].VolumeMounts)
		if !strings.Contains(mounts, "/workspace") {
			t.Errorf("%s has no workspace: %s", pod.Name, mounts)
		}
	}
	place.Exit(launcher, 0, report("", 2))
	place.untilPhase(job, training.PhaseSucceeded)
}

// initializer waits for the pod that fetches what a job starts from.
func (place *place) initializer(job client.Object) *corev1.Pod {
	place.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: job.GetName() + "-initializer-r0"}}
	place.Until("there is an initializer", pod, func() error { return nil })
	return pod
}

// fetches has the initializer complete.
func (place *place) fetches(job client.Object) {
	place.Helper()
	pod := place.initializer(job)
	place.Assign(pod)
	place.Exit(pod, 0, "")
}

// What the initializer itself says is what the job says. The kubelet restarts it
// twice.
func TestInitializerFails(t *testing.T) {
	place := parallel(t)
	place.Create(runtime("mpi"))
	job := trainJob("", "train", fetching)
	place.createEventually(job)
	pod := place.initializer(job)
	place.Assign(pod)
	fails := func(restarts int32) {
		place.SetStatus(pod, func(status *corev1.PodStatus) {
			status.Phase = corev1.PodRunning
			status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: pod.Spec.Containers[0].Name, RestartCount: restarts,
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 1, Reason: "Error", Message: "the bucket bucket has no object data: see storageUri", StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
				}},
			}}
		})
	}
	fails(2)
	place.Until("the job says what went wrong, and goes on", job, func() error {
		if _, message := conditionOf(job, "TrainingComplete"); !strings.Contains(message, "the bucket bucket has no object data") {
			return fmt.Errorf("it says %q", message)
		}
		return nil
	})
	if progressOf(job).Phase != training.PhasePending {
		t.Errorf("it is %+v", progressOf(job))
	}
	fails(3)
	place.untilPhase(job, training.PhaseFailed)
	want := fmt.Sprintf("The initializer (pod %s on node node-0) failed: the bucket bucket has no object data: see storageUri", pod.Name)
	if progress := progressOf(job); progress.FailureReason != training.FailureTraining || !strings.HasPrefix(progress.FailureMessage, want) {
		t.Errorf("it failed with %s: %s", progress.FailureReason, progress.FailureMessage)
	}
	if err := place.Get(&jobset.JobSet{}, "train"); err == nil {
		t.Error("it has a JobSet")
	}
}

// A job has a NetworkPolicy if it asks for one, from before its first pod.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		job    client.Object
		policy string
	}{
		"MPIJob": {mpiJob("train", func(job *v2beta1.MPIJob) {
			job.Spec.NetworkPolicy = &training.NetworkPolicy{Template: training.NetworkPolicyRestricted}
		}), "mpijob-train"},
		"TrainJob": {trainJob("", "train", func(job *v2alpha1.TrainJob) {
			job.Spec.NetworkPolicy = &training.NetworkPolicy{Template: training.NetworkPolicyDefault}
		}), "trainjob-train-network"},
		"TrainJob that fetches": {trainJob("", "train", fetching, func(job *v2alpha1.TrainJob) {
			job.Spec.NetworkPolicy = &training.NetworkPolicy{Template: training.NetworkPolicyDefault}
		}), "trainjob-train-network"},
	} {
		t.Run(name, func(t *testing.T) {
			place := parallel(t)
			place.Create(runtime("mpi"))
			place.createEventually(tc.job)
			policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: tc.policy}}
			place.Until("there is a policy", policy, func() error { return nil })
			if len(policy.OwnerReferences) != 1 || policy.OwnerReferences[0].UID != tc.job.GetUID() || policy.Spec.PodSelector.MatchLabels[training.LabelJobName] != "train" {
				t.Errorf("the policy belongs to %v, and is for %v", policy.OwnerReferences, policy.Spec.PodSelector)
			}
		})
	}
}

// A claim that is there is used, and never deleted.
func TestInitializerWithAClaim(t *testing.T) {
	place := parallel(t)
	place.Create(runtime("mpi"))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, Resources: corev1.VolumeResourceRequirements{Requests: resources("storage", "1Gi")},
	}}
	place.Create(claim)
	job := trainJob("", "train", fetching, func(job *v2alpha1.TrainJob) {
		job.Spec.Initializer.Storage = &v2alpha1.InitializerStorage{ClaimName: "data"}
	})
	place.createEventually(job)
	place.untilObjects("ControllerRevision/trireme-runtime", "PersistentVolumeClaim/data", "Pod/train-initializer-r0")
	place.fetches(job)
	launcher, _ := place.runs(job)
	place.Exit(launcher, 0, report("", 2))
	place.untilPhase(job, training.PhaseSucceeded)
	if err := place.client.Get(context.Background(), client.ObjectKeyFromObject(claim), claim); err != nil || len(claim.OwnerReferences) != 0 || claim.DeletionTimestamp != nil {
		t.Errorf("the claim belongs to %v (%v)", claim.OwnerReferences, err)
	}
}
