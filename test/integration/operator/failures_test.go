// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// How jobs fail, what is said of it, and what is left of them. Every way in which
// they can is diagnosis's own test.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(place *place, launcher *corev1.Pod, workers []*corev1.Pod)
		reason  training.FailureReason
		event   string
		message string
	}{
		"the command fails": {
			happens: func(place *place, launcher *corev1.Pod, _ []*corev1.Pod) {
				place.Exit(launcher, 3, report("TrainingError", 2))
			},
			reason: training.FailureTraining, event: "JobFailed", message: "The launcher (pod ",
		},
		"a worker fails": {
			happens: func(place *place, _ *corev1.Pod, workers []*corev1.Pod) {
				place.Exit(workers[1], 137, "")
			},
			reason: training.FailureWorker, event: "WorkerFailed", message: "Worker 1 (pod ",
		},
		"the launcher is evicted": {
			happens: func(place *place, launcher *corev1.Pod, _ []*corev1.Pod) {
				place.SetStatus(launcher, func(status *corev1.PodStatus) {
					status.Phase, status.Reason, status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
				})
			},
			reason: training.FailureLauncher, event: "LauncherFailed", message: "was evicted from its node: The node was low on resource: memory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(place *place, job client.Object) {
				if mpiJob, is := job.(*v2beta1.MPIJob); is {
					mpiJob.Spec.RunPolicy.BackoffLimit = new(int32(0))
				}
				place.createAs("ada@example.com", job)
				launcher, workers := place.runs(job)
				tc.happens(place, launcher, workers)
				place.untilPhase(job, training.PhaseFailed)
				if progress := progressOf(job); progress.FailureReason != tc.reason || !strings.Contains(progress.FailureMessage, tc.message) {
					place.Errorf("it failed with %s: %s", progress.FailureReason, progress.FailureMessage)
				}
				condition := []string{"Failed", "True " + string(tc.reason)}
				if isMPIJob(job) {
					condition = append(condition, "Running", "False Failed")
				}
				if err := wantConditions(job, condition...); err != nil {
					place.Error(err)
				}
				place.untilEvents(job, "JobSubmitted", "GangSchedulingStarted", "GangScheduled", "PodsReady", "TrainingStarted", tc.event)
				place.wantAudit(job, string(tc.reason))
				labels := fmt.Sprintf("{failure_reason=%q,namespace=%q}", tc.reason, place.Namespace)
				if !isMPIJob(job) {
					labels = fmt.Sprintf("{failure_reason=%q,namespace=%q,runtime=\"mpi\"}", tc.reason, place.Namespace)
				}
				place.untilMetric(metricOf(job, "failed_total"), labels, 1)
				place.wantLeft(launcher, workers)
			})
		})
	}
}

// Somebody deletes several workers within the second that a pod's deletion tells, and
// they end in any order: the first one is named.
func TestTheWorkerThatWasDeletedFirst(t *testing.T) {
	place := parallel(t)
	place.Create(runtime("mpi"))
	job := trainJob(place.Namespace, "train")
	place.createEventually(job)
	_, workers := place.runs(job)
	place.Delete(workers[1])
	place.Delete(workers[0])
	place.untilPhase(job, training.PhaseFailed)
	if progress := progressOf(job); progress.FailureReason != training.FailureWorker || !strings.HasPrefix(progress.FailureMessage, "Worker 1 (pod "+workers[1].Name) {
		t.Errorf("it failed with %s: %s", progress.FailureReason, progress.FailureMessage)
	}
}

// wantLeft: pods that run are deleted, those that have finished stay for their logs.
func (place *place) wantLeft(launcher *corev1.Pod, workers []*corev1.Pod) {
	place.Helper()
	place.Eventually("what runs is deleted, and what has finished stays", func() error {
		for _, pod := range append(slices.Clone(workers), launcher) {
			finished := pod.Status.Phase == corev1.PodFailed
			err := place.Get(pod, pod.Name)
			if finished == (err != nil || pod.DeletionTimestamp != nil) {
				return fmt.Errorf("pod %s, which has finished: %t, is deleted: %t", pod.Name, finished, !finished)
			}
		}
		return nil
	})
}

// No scheduler ever fails a job: the operator does, and says how much room there
// was.
func TestGangSchedulingTimeout(t *testing.T) {
	place := parallel(t)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "large"},
		Status:     corev1.NodeStatus{Allocatable: resources("cpu", "64", "memory", "256Gi", "pods", "110")},
	}
	place.cluster.create(t, node)
	// Every node begins with a taint.
	node.Spec.Taints = nil
	if err := place.client.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	job := mpiJob("train", func(job *v2beta1.MPIJob) {
		job.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: new(int32(2))}
	})
	place.Create(job)
	place.UntilLauncher(job)
	place.untilPhase(job, training.PhaseFailed)
	want := "Gang scheduling timeout: Requested 3 pods, only 1 nodes available with sufficient resources"
	if progress := progressOf(job); progress.FailureReason != training.FailureGangSchedulingTimeout || !strings.HasPrefix(progress.FailureMessage, want) {
		t.Errorf("it failed with %s: %s", progress.FailureReason, progress.FailureMessage)
	}
	place.untilEvents(job, "JobSubmitted", "GangSchedulingStarted", "GangSchedulingTimeout")
	place.Eventually("its workers and its group are gone", func() error {
		for name, object := range place.objects() {
			if object.Kind == "PodGroup" || object.Labels[training.LabelReplicaType] == training.RoleWorker {
				return fmt.Errorf("there is %s", name)
			}
		}
		return nil
	})
}
