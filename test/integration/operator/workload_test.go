// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

func limitRestarts(job client.Object, limit int32) {
	switch job := job.(type) {
	case *v2beta1.MPIJob:
		job.Spec.RunPolicy.BackoffLimit = &limit
	case *v2alpha1.TrainJob:
		job.Spec.BackoffLimit = &limit
	}
}

// A command that fails is restarted: an MPIJob with another launcher, a TrainJob with
// all of its pods.
func TestRestart(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(place *place, job client.Object) {
		limitRestarts(job, 1)
		place.createEventually(job)
		launcher, workers := place.runs(job)
		place.Exit(launcher, 3, report("TrainingError", 2))
		place.Until("the restart is announced", job, func() error {
			restart := progressOf(job).Restart
			if restart == nil || restart.Count != 1 || restart.Reason != training.FailureTraining || restart.DueTime.IsZero() {
				return fmt.Errorf("it is %+v", progressOf(job))
			}
			return nil
		})
		place.Eventually("an event tells of the restart", func() error {
			if got := place.eventsOf(job); !slices.Contains(got, "JobRestarting") {
				return fmt.Errorf("there are only %q", got)
			}
			return nil
		})
		place.Eventually("the pods of the restart exist", func() error {
			if isMPIJob(job) {
				return wantPods(place, job, "train-launcher-r0", "train-launcher-r1", "train-worker-0", "train-worker-1")
			}
			place.RemoveDeleted(append(workers, launcher)...)
			return wantPods(place, job, "train-launcher-0-0-r1", "train-worker-0-0-r1", "train-worker-0-1-r1")
		})
		if isMPIJob(job) {
			place.Until("it says that it is restarted", job, func() error { return wantConditions(job, "Restarting", "False MPIJobRestarted") })
			launcher = place.UntilLauncher(job)
			place.Assign(launcher)
			place.StartContainers(launcher)
			place.untilPhase(job, training.PhaseRunning)
		} else {
			launcher, _ = place.runs(job)
		}
		place.Exit(launcher, 4, report("TrainingError", 2))
		place.untilPhase(job, training.PhaseFailed)
		if progress := progressOf(job); progress.FailureReason != training.FailureTraining || progress.Restart.Count != 1 {
			place.Errorf("it failed with %s after %+v", progress.FailureReason, progress.Restart)
		}
		place.untilWorkloadFailed(job, 1)
	})
}

func wantPods(place *place, job client.Object, want ...string) error {
	names := map[string]bool{}
	for _, pod := range place.PodsOf(job, "") {
		names[pod.Name] = true
	}
	if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, want) {
		return fmt.Errorf("there are %q, want %q", got, want)
	}
	return nil
}

// untilWorkloadFailed waits until whoever looks at the workload knows of the failure.
func (place *place) untilWorkloadFailed(job client.Object, restarts int32) {
	place.Helper()
	if !isMPIJob(job) {
		set := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Name: job.GetName()}}
		place.Until("the JobSet has failed", set, func() error {
			if set.Status.TerminalState != string(jobset.JobSetFailed) || set.Status.Restarts != restarts {
				return fmt.Errorf("it says %+v", set.Status)
			}
			return nil
		})
		return
	}
	batch := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.GetName() + "-launcher"}}
	place.Until("the Job has failed", batch, func() error {
		for _, condition := range batch.Status.Conditions {
			if condition.Type == batchv1.JobFailed && condition.Status == corev1.ConditionTrue && condition.Reason == string(progressOf(job).FailureReason) && batch.Status.Failed == restarts+1 {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", batch.Status)
	})
}

// The launcher's Job says what kubectl wait waits for.
func TestTheLaunchersJobCompletes(t *testing.T) {
	place := parallel(t)
	job := mpiJob("train")
	place.Create(job)
	launcher, _ := place.runs(job)
	batch := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "train-launcher"}}
	place.Until("the Job is active", batch, func() error {
		if batch.Status.Active != 1 || batch.Status.StartTime == nil {
			return fmt.Errorf("it says %+v", batch.Status)
		}
		return nil
	})
	place.Exit(launcher, 0, report("", 2))
	place.Until("the Job is complete", batch, func() error {
		isComplete := slices.ContainsFunc(batch.Status.Conditions, func(one batchv1.JobCondition) bool {
			return one.Type == batchv1.JobComplete && one.Status == corev1.ConditionTrue
		})
		if !isComplete || batch.Status.Succeeded != 1 || batch.Status.Active != 0 || batch.Status.CompletionTime == nil {
			return fmt.Errorf("it says %+v", batch.Status)
		}
		return nil
	})
}

// Labels can be copied. Pods that belong to somebody else do not count, and are left
// alone.
func TestForgedPods(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(place *place, job client.Object) {
		place.createEventually(job)
		launcher, workers := place.runs(job)
		theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
		place.Create(theirs)
		var forged []*corev1.Pod
		for i, pod := range []*corev1.Pod{launcher, workers[0]} {
			copied := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("forged-%d", i), Labels: pod.Labels, Annotations: pod.Annotations,
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: theirs.Name, UID: theirs.UID, Controller: new(true)}},
				},
				Spec: corev1.PodSpec{Hostname: pod.Spec.Hostname, Containers: []corev1.Container{{Name: pod.Spec.Containers[0].Name, Image: "registry.example/theirs:1"}}},
			}
			place.createForged(copied)
			place.Assign(copied)
			forged = append(forged, copied)
		}
		place.Exit(forged[0], 0, report("", 2))
		place.Exit(forged[1], 1, "")
		place.stays("the job runs on", func() error {
			if err := place.Get(job, job.GetName()); err != nil || progressOf(job).Phase != training.PhaseRunning {
				return fmt.Errorf("it is %+v (%v)", progressOf(job), err)
			}
			return wantReplicas(job, 1, 2, 0)
		})
		place.Exit(launcher, 0, report("", 2))
		place.untilPhase(job, training.PhaseSucceeded)
		place.Eventually("the job's own workers are deleted", func() error {
			place.RemoveDeleted(workers...)
			for _, pod := range workers {
				if place.Get(pod, pod.Name) == nil {
					return fmt.Errorf("pod %s exists", pod.Name)
				}
			}
			return nil
		})
		for _, pod := range forged {
			if mustGet(place, pod, pod.Name).DeletionTimestamp != nil {
				place.Errorf("pod %s is being deleted", pod.Name)
			}
		}
	})
}

// JobSets that are not ours are never touched: of another owner, or managed by JobSet's
// own controller.
func TestForeignJobSets(t *testing.T) {
	t.Parallel()
	labels := map[string]string{training.LabelJobName: "train", training.LabelJobType: "trainjob"}
	for name, change := range map[string]func(*jobset.JobSet, client.Object){
		"of nobody": func(set *jobset.JobSet, _ client.Object) { set.Spec.ManagedBy = new(training.ManagedByTrireme) },
		"managed by JobSet's controller": func(set *jobset.JobSet, job client.Object) {
			set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, v2alpha1.GroupVersion.WithKind("TrainJob"))}
		},
		"managed by another": func(set *jobset.JobSet, job client.Object) {
			set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, v2alpha1.GroupVersion.WithKind("TrainJob"))}
			set.Spec.ManagedBy = new("example.com/other")
		},
	} {
		t.Run(name, func(t *testing.T) {
			place := parallel(t)
			place.Create(runtime("mpi"))
			job := trainJob("", "train", func(job *v2alpha1.TrainJob) { job.Spec.Suspend = new(true) })
			place.createEventually(job)
			set := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "train", Labels: labels}}
			change(set, job)
			place.createForged(set)
			version := set.ResourceVersion
			place.Patch(job, `{"spec":{"suspend":false}}`)
			place.untilPhase(job, training.PhaseFailed)
			if message := progressOf(job).FailureMessage; !strings.HasPrefix(message, "JobSet train could not be created: an object with this name exists") {
				t.Errorf("the job says %q", message)
			}
			place.stays("the JobSet is left alone, and has no pods", func() error {
				if mustGet(place, set, "train").ResourceVersion != version {
					return fmt.Errorf("it is %+v", set)
				}
				if len(place.PodsOf(job, "")) > 0 {
					return errors.New("there are pods")
				}
				return nil
			})
		})
	}
}
