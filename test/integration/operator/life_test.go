// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// bothKinds runs a test with a job of each kind, called train.
func bothKinds(t *testing.T, test func(*place, client.Object)) {
	t.Run("MPIJob", func(t *testing.T) { test(parallel(t), mpiJob("train")) })
	t.Run("TrainJob", func(t *testing.T) {
		place := parallel(t)
		place.Create(runtime("mpi"))
		test(place, trainJob("", "train"))
	})
}

// createAs creates a job as somebody.
func (place *place) createAs(user string, job client.Object) {
	place.Helper()
	identity, err := place.environment.AddUser(envtest.User{Name: user, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		place.Fatal(err)
	}
	person := place.as(place.TB, identity.Config())
	job.SetNamespace(place.Namespace)
	place.Eventually("the job is accepted", func() error { return person.Create(context.Background(), job) })
}

// eventsOf are the reasons of the events about a job, each once.
func (place *place) eventsOf(job client.Object) []string {
	place.Helper()
	var list corev1.EventList
	if err := place.client.List(context.Background(), &list, client.InNamespace(place.Namespace)); err != nil {
		place.Fatal(err)
	}
	reasons := map[string]bool{}
	for _, event := range list.Items {
		if event.InvolvedObject.UID == job.GetUID() {
			reasons[event.Reason] = true
		}
	}
	return slices.Sorted(maps.Keys(reasons))
}

func (place *place) untilEvents(job client.Object, want ...string) {
	place.Helper()
	slices.Sort(want)
	place.Eventually("the job has its events", func() error {
		if got := place.eventsOf(job); !slices.Equal(got, want) {
			return fmt.Errorf("there are %q, want %q", got, want)
		}
		return nil
	})
}

// A job from submit to finish, and what is said of it on the way.
func TestLife(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(place *place, job client.Object) {
		place.createAs("ada@example.com", job)
		launcher, workers := place.UntilPods(job)
		place.waits(job, launcher)
		place.isPlaced(job, launcher, workers)
		place.getsReady(job, launcher, workers)
		place.succeeds(job, launcher, workers)
		place.untilEvents(job, "JobSubmitted", "GangSchedulingStarted", "GangScheduled", "PodsReady", "TrainingStarted", "JobSucceeded")
		place.wantAudit(job, "Succeeded")
		place.isOver(job, launcher, workers)
	})
}

// waits: no pod has a place yet, and the scheduler has said why.
func (place *place) waits(job client.Object, pod *corev1.Pod) {
	place.Helper()
	place.SetStatus(pod, func(status *corev1.PodStatus) {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available: 3 Insufficient cpu.",
		})
	})
	place.Until("the job says what it waits for", job, func() error {
		if progress := progressOf(job); progress.Phase != training.PhasePending || progress.ReadyWorkers != "0/2" || len(progress.WorkerPodStatuses) != 2 {
			return fmt.Errorf("it is %+v", progress)
		}
		condition := v2alpha1.ConditionGangScheduling
		want := []string{"GangScheduling", "False Waiting", "LauncherReady", "False Waiting", "WorkersReady", "False Waiting", "TrainingComplete", "False Waiting"}
		if isMPIJob(job) {
			condition = string(v2beta1.JobPending)
			want = []string{"Created", "True MPIJobCreated", "Pending", "True Waiting", "Running", "False Pending"}
		}
		if _, message := conditionOf(job, condition); !strings.Contains(message, "3 Insufficient cpu") {
			return fmt.Errorf("it says %q", message)
		}
		return errors.Join(wantConditions(job, want...), wantSteps(progressOf(job), training.StepSubmitted, training.StepAdmitted), wantReplicas(job, 1, 2, 0))
	})
	if start := startOf(job); start != nil {
		place.Errorf("it has started, at %s", start)
	}
}

// isPlaced: each pod gets a node, and then runs.
func (place *place) isPlaced(job client.Object, launcher *corev1.Pod, workers []*corev1.Pod) {
	place.Helper()
	place.Assign(append(workers, launcher)...)
	place.Until("the job has started", job, func() error {
		if startOf(job) == nil {
			return errors.New("it has no startTime")
		}
		return wantSteps(progressOf(job), training.StepSubmitted, training.StepAdmitted, training.StepScheduled)
	})
	place.StartContainers(workers...)
	place.StartContainers(launcher)
	place.untilPhase(job, training.PhaseRunning)
	place.untilMetric(runningMetric(job), fmt.Sprintf("{namespace=%q}", place.Namespace), 1)
}

// getsReady: the workers' ports answer, and the launcher reaches them.
func (place *place) getsReady(job client.Object, launcher *corev1.Pod, workers []*corev1.Pod) {
	place.Helper()
	place.Ready(workers...)
	place.Until("all workers are ready", job, func() error {
		if progress := progressOf(job); progress.ReadyWorkers != "2/2" {
			return fmt.Errorf("it is %+v", progress)
		}
		return wantSteps(progressOf(job), training.StepSubmitted, training.StepAdmitted, training.StepScheduled, training.StepPodsReady)
	})
	place.Ready(launcher)
	place.Until("the launcher has reached the workers", job, func() error {
		if isMPIJob(job) {
			return errors.Join(wantConditions(job, "Running", "True MPIJobRunning", "Pending", "False Running"), wantReplicas(job, 1, 2, 0))
		}
		return wantConditions(job, "GangScheduling", "True Scheduled", "WorkersReady", "True Ready", "LauncherReady", "True WorkersReached", "TrainingComplete", "False Running")
	})
}

// succeeds: the launcher's command ends with 0, and says how it went.
func (place *place) succeeds(job client.Object, launcher *corev1.Pod, workers []*corev1.Pod) {
	place.Helper()
	place.Exit(launcher, 0, report("", 2))
	place.untilPhase(job, training.PhaseSucceeded)
	want := []string{"TrainingComplete", "True Succeeded", "Failed", "False NotFailed", "GangScheduling", "True Scheduled", "LauncherReady", "True WorkersReached"}
	if isMPIJob(job) {
		want = []string{"Succeeded", "True MPIJobSucceeded", "Running", "False Succeeded", "Pending", "False Succeeded"}
	}
	err := errors.Join(wantConditions(job, want...), wantSteps(progressOf(job), training.StepSubmitted, training.StepAdmitted, training.StepScheduled,
		training.StepPodsReady, training.StepWorkersReached, training.StepFirstRankUp, training.StepFinished))
	if err != nil {
		place.Error(err)
	}
	if endOf(job) == nil || endOf(job).Before(startOf(job)) || progressOf(job).Duration == "" || progressOf(job).FailureReason != "" {
		place.Errorf("it ended at %s, after %s: %s", endOf(job), progressOf(job).Duration, progressOf(job).FailureReason)
	}
	place.Eventually("workers, keys and group are gone, the rest stays", func() error {
		place.RemoveDeleted(workers...)
		if isMPIJob(job) {
			return place.wantObjects("ConfigMap/train-hostfile", "Job/train-launcher", "Service/train-worker", "Pod/"+launcher.Name)
		}
		return place.wantObjects("ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "JobSet/train", "Service/train-worker", "Pod/"+launcher.Name)
	})
	place.Until("the launcher has no finalizer any more", launcher, func() error {
		if len(launcher.Finalizers) > 0 {
			return fmt.Errorf("it has %v", launcher.Finalizers)
		}
		return nil
	})
	if isMPIJob(job) {
		place.Until("the pods are counted", job, func() error { return wantReplicas(job, 0, 0, 1) })
	}
	labels := fmt.Sprintf("{namespace=%q}", place.Namespace)
	if !isMPIJob(job) {
		labels = fmt.Sprintf("{namespace=%q,runtime=\"mpi\"}", place.Namespace)
	}
	for _, name := range []string{"created_total", "succeeded_total", "duration_seconds_count", "time_to_start_seconds_count", "gang_scheduling_duration_seconds_count", "mpi_init_duration_seconds_count", "ssh_connect_duration_seconds_count"} {
		place.untilMetric(metricOf(job, name), labels, 1)
	}
	place.untilMetric(runningMetric(job), fmt.Sprintf("{namespace=%q}", place.Namespace), 0)
}

// isOver: nothing that happens to pods changes how a job has ended.
func (place *place) isOver(job client.Object, launcher *corev1.Pod, workers []*corev1.Pod) {
	place.Helper()
	before := job.DeepCopyObject().(client.Object)
	place.Remove(append(workers, launcher)...)
	place.stays("what has ended has ended", func() error {
		if err := place.Get(job, job.GetName()); err != nil {
			return err
		}
		if progressOf(job).Phase != training.PhaseSucceeded || *endOf(job) != *endOf(before) || len(progressOf(job).Timeline) != len(progressOf(before).Timeline) {
			return fmt.Errorf("it is %+v, ended at %s", progressOf(job), endOf(job))
		}
		if isMPIJob(job) {
			return wantReplicas(job, 0, 0, 1)
		}
		return nil
	})
}

func (place *place) wantObjects(want ...string) error {
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(place.objects())); !slices.Equal(got, want) {
		return fmt.Errorf("there are %q, want %q", got, want)
	}
	return nil
}

// wantAudit: one line that the job started and one that it ended, with who
// created it.
func (place *place) wantAudit(job client.Object, result string) {
	place.Helper()
	want := []string{"start ", "end " + result}
	place.Eventually("start and end are in the audit", func() error {
		var got []string
		for _, line := range place.operator.Audit.About(place.TB, job.GetName()) {
			if line["uid"] == string(job.GetUID()) && line["user"] == "ada@example.com" && line["namespace"] == place.Namespace {
				got = append(got, fmt.Sprintf("%s %s", line["verb"], line["result"]))
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("the audit has %q, want %q", got, want)
		}
		return nil
	})
}

func startOf(object client.Object) *metav1.Time {
	if mpiJob, is := object.(*v2beta1.MPIJob); is {
		return mpiJob.Status.StartTime
	}
	return object.(*v2alpha1.TrainJob).Status.StartTime
}

func endOf(object client.Object) *metav1.Time {
	if mpiJob, is := object.(*v2beta1.MPIJob); is {
		return mpiJob.Status.CompletionTime
	}
	return object.(*v2alpha1.TrainJob).Status.CompletionTime
}

// wantReplicas compares the counts of an MPIJob: pods of the launcher and of
// workers that are active, and launchers that succeeded.
func wantReplicas(object client.Object, launchers, workers, succeeded int32) error {
	job, is := object.(*v2beta1.MPIJob)
	if !is {
		return nil
	}
	launcher, worker := job.Status.ReplicaStatuses[v2beta1.MPIReplicaTypeLauncher], job.Status.ReplicaStatuses[v2beta1.MPIReplicaTypeWorker]
	if launcher == nil || worker == nil || launcher.Active != launchers || worker.Active != workers || launcher.Succeeded != succeeded {
		return fmt.Errorf("the counts are %+v and %+v, want %d and %d active, %d succeeded", launcher, worker, launchers, workers, succeeded)
	}
	return nil
}
