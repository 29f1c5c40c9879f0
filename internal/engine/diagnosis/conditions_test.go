// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// conditions are all conditions of the object, as text.
func (sc *scene) conditions() map[string]string {
	found := map[string]string{}
	for _, condition := range sc.trainJob.Status.Conditions {
		found[condition.Type] = sc.condition(condition.Type)
	}
	for _, condition := range sc.mpiJob.Status.Conditions {
		found[string(condition.Type)] = sc.condition(string(condition.Type))
	}
	return found
}

// lifecycle is the steps of a job, one after the other.
var lifecycle = []struct {
	name          string
	happen        func(*scene)
	train, mpiJob map[string]string
}{
	{
		name: "suspended", happen: func(scene *scene) { scene.job.Suspended = true },
		train: map[string]string{
			"GangScheduling":   "False Suspended: The job is suspended and has no pods",
			"WorkersReady":     "False Suspended: The job is suspended and has no pods",
			"LauncherReady":    "False Suspended: The job is suspended and has no pods",
			"TrainingComplete": "False Suspended: The job is suspended and has no pods",
			"Suspended":        "True Suspended: The job is suspended and has no pods",
			"Failed":           "False NotFailed: The job has not failed",
		},
		mpiJob: map[string]string{
			"Created":   "True MPIJobCreated: The job was created",
			"Suspended": "True MPIJobSuspended: The job is suspended and has no pods",
			"Pending":   "True Suspended: The job is suspended and has no pods",
			"Running":   "False Pending: The job is suspended and has no pods",
		},
	},
	{
		name: "resumed", happen: func(scene *scene) { scene.job.Suspended = false },
		train: map[string]string{
			"GangScheduling":   "False CreatingPods: 0 of 3 pods exist, 0 are scheduled",
			"WorkersReady":     "False Waiting: 0 of 2 workers are ready. Worker 0 has no pod",
			"LauncherReady":    "False Waiting: The launcher has no pod yet",
			"TrainingComplete": "False CreatingPods: 0 of 3 pods exist, 0 are scheduled",
			"Suspended":        "False NotSuspended: The job is not suspended",
			"Failed":           "False NotFailed: The job has not failed",
		},
		mpiJob: map[string]string{
			"Created":   "True MPIJobCreated: The job was created",
			"Suspended": "False MPIJobResumed: The job is not suspended",
			"Pending":   "True CreatingPods: 0 of 3 pods exist, 0 are scheduled",
			"Running":   "False Pending: 0 of 3 pods exist, 0 are scheduled",
		},
	},
	{
		name: "running", happen: func(scene *scene) { scene.addPods(runs) },
		train: map[string]string{
			"GangScheduling":   "True Scheduled: All 3 pods are scheduled. The scheduler schedules them one by one.",
			"WorkersReady":     "True Ready: All 2 workers are ready",
			"LauncherReady":    "True WorkersReached: The launcher has reached every worker",
			"TrainingComplete": "False Running: Launcher and workers are running",
			"Suspended":        "False NotSuspended: The job is not suspended",
			"Failed":           "False NotFailed: The job has not failed",
		},
		mpiJob: map[string]string{
			"Created":   "True MPIJobCreated: The job was created",
			"Suspended": "False MPIJobResumed: The job is not suspended",
			"Pending":   "False Running: Launcher and workers are running",
			"Running":   "True MPIJobRunning: Launcher and workers are running",
		},
	},
	{
		name: "done", happen: func(scene *scene) { scene.launcher(exits(0, "Completed", "", 50)) },
		train: map[string]string{
			"GangScheduling":   "True Scheduled: All 3 pods are scheduled. The scheduler schedules them one by one.",
			"WorkersReady":     "True Ready: All 2 workers are ready",
			"LauncherReady":    "True WorkersReached: The launcher has reached every worker",
			"TrainingComplete": "True Succeeded: The launcher completed successfully",
			"Suspended":        "False NotSuspended: The job is not suspended",
			"Failed":           "False NotFailed: The job has not failed",
		},
		mpiJob: map[string]string{
			"Created":   "True MPIJobCreated: The job was created",
			"Suspended": "False MPIJobResumed: The job is not suspended",
			"Pending":   "False Succeeded: The launcher completed successfully",
			"Running":   "False Succeeded: The launcher completed successfully",
			"Succeeded": "True MPIJobSucceeded: The launcher completed successfully",
		},
	},
}

func TestConditionsOfSuccess(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := newScene(t, kind, 2)
			for _, step := range lifecycle {
				step.happen(scene)
				scene.storeVerdict()
				want := step.train
				if kind == job.KindMPIJob {
					want = step.mpiJob
				}
				if diff := cmp.Diff(want, scene.conditions()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", step.name, diff)
				}
			}
		})
	}
}

func TestConditionsOfFailure(t *testing.T) {
	message := "Worker 1 (pod {worker 1} on node node-1) exited with code 1. See its log: kubectl logs {worker 1} -c main -n team."
	for kind, want := range map[job.Kind]map[string]string{
		job.KindTrainJob: {
			"GangScheduling":   "True Scheduled: All 3 pods are scheduled. The scheduler schedules them one by one.",
			"WorkersReady":     "False Error: 1 of 2 workers are ready. " + message,
			"LauncherReady":    "True WorkersReached: The launcher has reached every worker",
			"TrainingComplete": "False WorkerFailed: " + message,
			"Suspended":        "False NotSuspended: The job is not suspended",
			"Failed":           "True WorkerFailed: " + message,
		},
		job.KindMPIJob: {
			"Created": "True MPIJobCreated: The job was created",
			"Pending": "False Failed: " + message,
			"Running": "False Failed: " + message,
			"Failed":  "True WorkerFailed: " + message,
		},
	} {
		scene := runningScene(t, kind)
		scene.worker(1, exits(1, "Error", "", 50))
		scene.storeVerdict()
		for _, name := range slices.Collect(maps.Keys(want)) {
			want[name] = scene.expand(want[name])
		}
		if diff := cmp.Diff(want, scene.conditions()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

// The time of a condition changes only with its status.
func TestConditionTimes(t *testing.T) {
	for _, kind := range kinds {
		scene := newScene(t, kind, 2)
		scene.setTime(10)
		scene.storeVerdict()
		scene.setTime(20)
		scene.addPods(pullsImage)
		scene.storeVerdict()
		for _, condition := range scene.trainJob.Status.Conditions {
			if want := map[string]float64{"GangScheduling": 20}[condition.Type]; !condition.LastTransitionTime.Time.Equal(at(max(want, 10))) {
				t.Errorf("%s is %s since %v", condition.Type, condition.Status, condition.LastTransitionTime)
			}
			if condition.ObservedGeneration != 1 {
				t.Errorf("%s is of generation %d", condition.Type, condition.ObservedGeneration)
			}
		}
		for _, condition := range scene.mpiJob.Status.Conditions {
			updated := map[v2beta1.JobConditionType]float64{v2beta1.JobCreated: 10}[condition.Type]
			if updated == 0 {
				updated = 20
			}
			if !condition.LastTransitionTime.Time.Equal(at(10)) || !condition.LastUpdateTime.Time.Equal(at(updated)) {
				t.Errorf("%s is %s since %v, updated %v", condition.Type, condition.Status, condition.LastTransitionTime, condition.LastUpdateTime)
			}
		}
	}
}

// Kueue releases the quota of a job without active replicas.
func TestReplicaStatuses(t *testing.T) {
	scene := runningScene(t, job.KindMPIJob)
	want := map[v2beta1.MPIReplicaType]*v2beta1.ReplicaStatus{
		v2beta1.MPIReplicaTypeLauncher: {Active: 1, Selector: "training.kubeflow.org/job-name=train,training.kubeflow.org/job-type=mpijob,training.kubeflow.org/replica-type=launcher"},
		v2beta1.MPIReplicaTypeWorker:   {Active: 2, Selector: "training.kubeflow.org/job-name=train,training.kubeflow.org/job-type=mpijob,training.kubeflow.org/replica-type=worker"},
	}
	check := func(when string) {
		t.Helper()
		if diff := cmp.Diff(want, scene.mpiJob.Status.ReplicaStatuses); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("running")
	// Fields of older operators stay.
	theirs := &metav1.LabelSelector{MatchLabels: map[string]string{"mpi_job_name": "train"}}
	scene.mpiJob.Status.ReplicaStatuses[v2beta1.MPIReplicaTypeWorker].LabelSelector = theirs
	want[v2beta1.MPIReplicaTypeWorker].LabelSelector = theirs
	scene.storeVerdict()
	check("with a selector of an older operator")
	scene.job.Suspended = true
	scene.everyPod(deleted(55))
	scene.storeVerdict()
	check("suspended, and all pods are still being deleted")
	if running := scene.condition("Running"); running != "False Pending: The job is suspended; its pods are being deleted" {
		t.Errorf("Kueue would take it as ready when it is resumed: %s", running)
	}
	scene.worker(0, exits(143, "Error", "", 56))
	scene.observed.Launchers = nil
	scene.storeVerdict()
	want[v2beta1.MPIReplicaTypeLauncher].Active = 0
	want[v2beta1.MPIReplicaTypeWorker].Active, want[v2beta1.MPIReplicaTypeWorker].Failed = 1, 1
	check("suspended, and one worker is still being deleted")
	scene.observed.Workers = nil
	scene.storeVerdict()
	want[v2beta1.MPIReplicaTypeWorker].Active, want[v2beta1.MPIReplicaTypeWorker].Failed = 0, 0
	check("suspended, and all pods are deleted")
}

// A finished job counts its pods until they are deleted.
func TestReplicaStatusesOfFinishedJob(t *testing.T) {
	scene := runningScene(t, job.KindMPIJob)
	scene.launcher(exits(0, "Completed", "", 50))
	scene.storeVerdict()
	if worker := scene.mpiJob.Status.ReplicaStatuses[v2beta1.MPIReplicaTypeWorker]; worker.Active != 2 {
		t.Errorf("workers %+v", worker)
	}
	before := scene.conditions()
	scene.observed.Workers = nil
	scene.storeVerdict()
	launcher, worker := scene.mpiJob.Status.ReplicaStatuses[v2beta1.MPIReplicaTypeLauncher], scene.mpiJob.Status.ReplicaStatuses[v2beta1.MPIReplicaTypeWorker]
	if launcher.Succeeded != 1 || launcher.Active != 0 || worker.Active != 0 {
		t.Errorf("launcher %+v, workers %+v", launcher, worker)
	}
	if diff := cmp.Diff(before, scene.conditions()); diff != "" {
		t.Errorf("conditions (-before +after):\n%s", diff)
	}
	// Finished pods still count after their deletion.
	scene.observed.Launchers = nil
	scene.storeVerdict()
	if launcher := scene.mpiJob.Status.ReplicaStatuses[v2beta1.MPIReplicaTypeLauncher]; launcher.Succeeded != 1 || launcher.Active != 0 {
		t.Errorf("launcher %+v, after its pod was deleted", launcher)
	}
}

// The API server accepts the status for any reason of a kubelet or container runtime.
func TestConditionsAreValid(t *testing.T) {
	for _, reason := range []string{"", "Out of cpu", "größer", "-", "Reason:", strings.Repeat("x", 2000)} {
		scene := runningScene(t, job.KindTrainJob)
		scene.worker(1, terminatedByNode(reason, "", 50), exits(1, reason, "", 50))
		scene.launcher(waits("CreateContainerConfigError", strings.Repeat("ü", 40000)))
		scene.storeVerdict()
		for _, condition := range scene.trainJob.Status.Conditions {
			if !validReason.MatchString(condition.Reason) || len(condition.Reason) > 1024 {
				t.Errorf("%s has reason %.30q for %.30q", condition.Type, condition.Reason, reason)
			}
			if len(condition.Message) > 32768 || !utf8.ValidString(condition.Message) {
				t.Errorf("%s has a message of %d bytes", condition.Type, len(condition.Message))
			}
		}
	}
}

// A message is truncated between two characters of any length.
func TestTruncated(t *testing.T) {
	for before := range 4 {
		message := strings.Repeat("x", before) + strings.Repeat("€", maxMessage/2)
		if short := truncated(message); !utf8.ValidString(short) || !strings.HasPrefix(message, short) || len(short) > maxMessage || len(short) < maxMessage-2 {
			t.Errorf("%d of %d bytes are left", len(short), len(message))
		}
	}
	if whole := strings.Repeat("x", maxMessage); truncated(whole) != whole {
		t.Error("a message that fits is cut")
	}
}

func TestBlocked(t *testing.T) {
	obstacle := Condition{Reason: "RuntimeNotFound", Message: "The ClusterTrainingRuntime mpi is deleted. Create it again."}
	scene := newScene(t, job.KindTrainJob, 2)
	verdict := Blocked(scene.previous(), obstacle)
	scene.store(&verdict)
	if verdict.Phase != training.PhasePending || verdict.NextCheck != obstacleRetryPause {
		t.Errorf("%s, next check in %s", verdict.Phase, verdict.NextCheck)
	}
	for _, name := range []string{"GangScheduling", "WorkersReady", "LauncherReady", "TrainingComplete"} {
		if got, want := scene.condition(name), fmt.Sprintf("False %s: %s", obstacle.Reason, obstacle.Message); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if diff := cmp.Diff([]training.TimelineEntry{{Step: training.StepSubmitted, Time: stamp(submitted)}}, scene.previous().Timeline); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
}

// An obstacle is reported until all objects of the job exist.
func TestObstacles(t *testing.T) {
	obstacle := Condition{Reason: "NoGangScheduler", Message: "This cluster has no Volcano. Install it."}
	for _, kind := range kinds {
		scene := newScene(t, kind, 2)
		scene.observed.Obstacle = &obstacle
		verdict := scene.storeVerdict()
		if verdict.Waiting != obstacle || verdict.Gang != obstacle || verdict.NextCheck != obstacleRetryPause || verdict.Phase != training.PhasePending {
			t.Errorf("%s: %+v", kind, verdict)
		}
		withInitializer(scene)
		if verdict = scene.storeVerdict(); verdict.Waiting != obstacle || verdict.NextCheck != obstacleRetryPause {
			t.Errorf("%s with an initializer waits for %+v", kind, verdict.Waiting)
		}
		scene.observed.Initializers = []*corev1.Pod{scene.newPod(training.RoleInitializer, 0, runs)}
		if verdict = scene.storeVerdict(); verdict.Waiting.Reason != "Initializing" {
			t.Errorf("%s with an initializer pod waits for %+v", kind, verdict.Waiting)
		}
		scene.job.Initializer = nil
		scene.observed.Workload.Exists = true
		if verdict = scene.storeVerdict(); verdict.Waiting != obstacle {
			t.Errorf("%s that has no pods yet waits for %+v", kind, verdict.Waiting)
		}
		scene.addPods(runs)
		if verdict = scene.storeVerdict(); verdict.Phase != training.PhaseRunning || verdict.NextCheck != 0 {
			t.Errorf("%s running is %s and next check in %s", kind, verdict.Phase, verdict.NextCheck)
		}
		overdue := startedScene(t, kind, runs, deadline(100))
		overdue.setTime(200)
		overdue.observed.Workload.Exists, overdue.observed.Confirmed, overdue.observed.Obstacle = true, true, &obstacle
		overdue.observed.Workers = overdue.observed.Workers[:0]
		overdue.forgetPods()
		if verdict = overdue.storeVerdict(); verdict.Phase != training.PhaseFailed || verdict.NextCheck != 0 || verdict.Waiting == obstacle {
			t.Errorf("%s past its deadline is %s, next check in %s and waits for %+v", kind, verdict.Phase, verdict.NextCheck, verdict.Waiting)
		}
	}
}
