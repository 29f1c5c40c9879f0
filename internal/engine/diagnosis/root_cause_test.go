// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

const rankDied = `{"reason":"TrainingError","message":"rank 1 exited with code 1","rank":1}`

// rankFailedOn is a report about a failed rank on a worker.
func rankFailedOn(scene *scene, worker int32) string {
	return reportText(scene.t, protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 3 exited with code 1", Rank: new(3), Host: plan.WorkerHost(scene.job, worker)})
}

// The first failure is the root cause, whatever else is observed with it.
func TestRootCause(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(*scene)
		phase  training.Phase
		reason training.FailureReason
		cause  string
	}{
		"a worker out of memory, then the launcher that lost it": {
			func(scene *scene) { scene.worker(1, outOfMemory(50)); scene.launcher(exits(1, "Error", rankDied, 51)) },
			training.PhaseFailed, training.FailureWorker, "{worker 1} on node node-1) exceeded its memory limit",
		},
		"a worker out of memory and the launcher that lost it in the same second": {
			func(scene *scene) { scene.worker(1, outOfMemory(50)); scene.launcher(exits(1, "Error", rankDied, 50)) },
			training.PhaseFailed, training.FailureWorker, "exceeded its memory limit",
		},
		"a worker out of memory, the launcher and the deletion of all in the same second": {
			func(scene *scene) {
				scene.launcher(exits(1, "Error", rankDied, 50))
				scene.worker(0, deleted(50), exits(143, "Error", "", 50))
				scene.worker(1, outOfMemory(50), deleted(50))
			},
			training.PhaseFailed, training.FailureWorker, "exceeded its memory limit",
		},
		"a worker out of memory, and one that is deleted for it before it ran": {
			func(scene *scene) {
				scene.worker(0, deleted(51), neverRan)
				scene.worker(1, outOfMemory(50))
			},
			training.PhaseFailed, training.FailureWorker, "exceeded its memory limit",
		},
		"a worker out of memory, and one that is deleted for it before its container began": {
			func(scene *scene) {
				scene.worker(0, deleted(51), exits(137, "ContainerStatusUnknown", "The container could not be located", 51), withoutFinishTime)
				scene.worker(1, outOfMemory(50))
			},
			training.PhaseFailed, training.FailureWorker, "exceeded its memory limit",
		},
		"a worker that is deleted before it ran": {
			func(scene *scene) { scene.worker(0, deleted(50), neverRan) },
			training.PhaseFailed, training.FailureWorker, "{worker 0} on node node-0) was deleted while the job ran",
		},
		"a worker that failed a second before it was deleted": {
			func(scene *scene) {
				scene.worker(1, exits(4, "Error", "", 50), deleted(51))
				scene.launcher(exits(1, "Error", rankDied, 50))
			},
			training.PhaseFailed, training.FailureWorker, "exited with code 4",
		},
		"the launcher, and workers that are deleted in the same second": {
			func(scene *scene) {
				scene.launcher(exits(1, "Error", rankDied, 50))
				scene.worker(0, deleted(50), exits(143, "Error", "", 50))
				scene.worker(1, deleted(50))
			},
			training.PhaseFailed, training.FailureTraining, "rank 1 exited with code 1",
		},
		"the launcher, and workers that are deleted and killed afterwards": {
			func(scene *scene) {
				scene.launcher(exits(1, "Error", rankDied, 50))
				scene.worker(0, deleted(51), exits(137, "Error", "", 55))
				scene.worker(1, deleted(51), exits(0, "Completed", "", 52))
			},
			training.PhaseFailed, training.FailureTraining, "rank 1 exited with code 1",
		},
		"the launcher, then a worker by itself": {
			func(scene *scene) { scene.launcher(exits(1, "Error", rankDied, 50)); scene.worker(1, outOfMemory(54)) },
			training.PhaseFailed, training.FailureTraining, "rank 1 exited with code 1",
		},
		"the launcher, that names a worker which fails by itself later": {
			func(scene *scene) {
				scene.launcher(exits(1, "Error", rankFailedOn(scene, 1), 50))
				scene.worker(1, outOfMemory(54))
			},
			training.PhaseFailed, training.FailureTraining, "rank 3 exited with code 1",
		},
		"the launcher, that names a worker which is deleted in the same second": {
			func(scene *scene) {
				scene.launcher(exits(1, "Error", rankFailedOn(scene, 1), 50))
				scene.worker(1, deleted(50), exits(143, "Error", "", 50))
			},
			training.PhaseFailed, training.FailureTraining, "rank 3 exited with code 1",
		},
		"a worker that is evicted, the launcher and the deletion of all in the same second": {
			func(scene *scene) {
				scene.launcher(exits(1, "Error", rankDied, 50))
				scene.worker(1, terminatedByNode("Evicted", "low on memory", 50), deleted(50))
			},
			training.PhaseFailed, training.FailureWorker, "was evicted from its node",
		},
		"the launcher, then its node": {
			func(scene *scene) {
				scene.launcher(exits(1, "Error", rankDied, 50), disrupted("EvictionByEvictionAPI", "Eviction API: evicting", 55), deleted(55))
			},
			training.PhaseFailed, training.FailureTraining, "rank 1 exited with code 1",
		},
		"the later worker is the lower one": {
			func(scene *scene) { scene.worker(0, outOfMemory(51)); scene.worker(1, exits(9, "Error", "", 50)) },
			training.PhaseFailed, training.FailureWorker, "{worker 1} on node node-1) exited with code 9",
		},
		"two workers in the same second": {
			func(scene *scene) { scene.worker(1, outOfMemory(50)); scene.worker(0, exits(9, "Error", "", 50)) },
			training.PhaseFailed, training.FailureWorker, "{worker 0} on node node-0) exited with code 9",
		},
		"a container of a pod before another": {
			func(scene *scene) {
				pod := scene.worker(1, exits(143, "Error", "", 51))
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "logs"})
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "logs", State: terminated(7, "Error", "", 50)})
			},
			training.PhaseFailed, training.FailureWorker, "exited with code 7 in its container logs",
		},
		"a refusal before everything": {
			func(scene *scene) {
				scene.worker(1, outOfMemory(50))
				scene.observed.Refusal = &Refusal{Role: training.RoleLauncher, Object: "Pod x", Message: "violates PodSecurity"}
			},
			training.PhaseFailed, training.FailureLauncher, "violates PodSecurity",
		},
		"a worker that fails before a quota": {
			func(scene *scene) {
				scene.worker(1, outOfMemory(50))
				scene.observed.Refusal = &Refusal{Object: "Pod x", Message: exceeded, Quota: true}
			},
			training.PhaseFailed, training.FailureWorker, "exceeded its memory limit",
		},
		"success, then a worker that fails": {
			func(scene *scene) { scene.launcher(exits(0, "Completed", "", 50)); scene.worker(1, outOfMemory(51)) },
			training.PhaseSucceeded, "", "",
		},
		"success, the phase changes later, and workers that are deleted": {
			func(scene *scene) {
				scene.launcher(exitsFirst(0, "Completed", "", 50))
				scene.worker(0, deleted(50), exits(143, "Error", "", 51))
				scene.worker(1, deleted(50))
			},
			training.PhaseSucceeded, "", "",
		},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := runningScene(t, kind)
				tc.happen(scene)
				verdict := scene.verdict()
				if verdict.Phase != tc.phase || verdict.FailureReason != tc.reason || !strings.Contains(verdict.FailureMessage, scene.expand(tc.cause)) {
					t.Errorf("%s %s: %s\nwant %s %s: %s", verdict.Phase, verdict.FailureReason, verdict.FailureMessage, tc.phase, tc.reason, tc.cause)
				}
			})
		}
	}
}

// A worker that crashes now is not the cause of an earlier failure.
func TestLaterCrashIsNotRootCause(t *testing.T) {
	scene := runningScene(t, job.KindMPIJob, restartPolicies(corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure))
	scene.launcher(exits(1, "Error", rankDied, 40))
	scene.worker(0, crashes(2, 1, 50))
	if verdict := scene.verdict(); verdict.FailureReason != training.FailureTraining {
		t.Errorf("%s: %s", verdict.FailureReason, verdict.FailureMessage)
	}
}

// The completion time is the time of the root cause, or now if the operator stops the
// job.
func TestCompletionTime(t *testing.T) {
	for name, tc := range map[string]struct {
		start   podOption
		options []option
		happen  func(*scene)
		want    float64
	}{
		"success":                     {runs, nil, onLauncher(exits(0, "Completed", "", 50)), 50},
		"a worker fails":              {runs, nil, onWorker(outOfMemory(40)), 40},
		"the launcher fails":          {runs, nil, onLauncher(exits(1, "Error", "", 45)), 45},
		"a drain":                     {runs, nil, onWorker(disrupted("EvictionByEvictionAPI", "", 42)), 42},
		"a deletion":                  {runs, nil, onWorker(deleted(44), exits(143, "Error", "", 50)), 44},
		"an image pull timeout":       {pullsImage, nil, later(400, onWorker(waits("ErrImagePull", ""))), 400},
		"a name of no image":          {pullsImage, nil, onWorker(waits("InvalidImageName", "")), present},
		"unschedulable":               {unschedulable(noGPUs), nil, later(500, func(*scene) {}), 500},
		"its own deadline":            {runs, []option{deadline(100)}, later(120, func(*scene) {}), 120},
		"a refusal":                   {nothing, nil, refused(Refusal{Object: "Pod x", Message: "no"}), present},
		"a finish time in the future": {runs, nil, onLauncher(exits(0, "Completed", "", 90)), present},
		"no finish time":              {runs, nil, onWorker(exits(1, "Error", "", 0), withoutFinishTime), present},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := startedScene(t, kind, tc.start, tc.options...)
				tc.happen(scene)
				verdict := scene.storeVerdict()
				if verdict.CompletionTime == nil || !verdict.CompletionTime.Time.Equal(at(tc.want)) {
					t.Errorf("completed at %v, want %v: %s", verdict.CompletionTime, at(tc.want), verdict.FailureMessage)
				}
				if finished := stepTime(scene.previous().Timeline, training.StepFinished); finished == nil || !finished.Time.Equal(at(tc.want)) {
					t.Errorf("the timeline has it finished at %v, want %v", finished, at(tc.want))
				}
				if again := scene.storeVerdict(); !again.CompletionTime.Time.Equal(at(tc.want)) {
					t.Errorf("later it was completed at %v, want %v", again.CompletionTime, at(tc.want))
				}
			})
		}
	}
}

// A launcher that lost a worker fails only after the status of the worker's pod could
// be updated.
func TestLostWorkerStatus(t *testing.T) {
	lost := func(scene *scene, second float64) {
		report := protocol.Report{Reason: protocol.ReasonWorker, Message: "lost worker 1", Host: plan.WorkerHost(scene.job, 1)}
		scene.launcher(exits(71, "Error", reportText(t, report), second))
	}
	for name, tc := range map[string]struct {
		happen func(*scene)
		waits  bool
		cause  string
	}{
		"just now":                            {func(scene *scene) { lost(scene, present-1) }, true, ""},
		"by a clock that is a little ahead":   {func(scene *scene) { lost(scene, present+2) }, true, ""},
		"by a clock that is far ahead":        {func(scene *scene) { lost(scene, present+600) }, false, "lost worker 1"},
		"a while ago":                         {func(scene *scene) { lost(scene, present-3) }, false, "lost worker 1"},
		"just now, and its pod has failed":    {func(scene *scene) { lost(scene, present-1); scene.worker(1, outOfMemory(present)) }, false, "exceeded its memory limit"},
		"just now, and it is being deleted":   {func(scene *scene) { lost(scene, present-1); scene.worker(1, deleted(present-2)) }, false, "was deleted"},
		"just now, and it is deleted for it":  {func(scene *scene) { lost(scene, present-2); scene.worker(1, deleted(present)) }, true, ""},
		"just now, and no worker of the name": {onLauncher(exits(71, "Error", `{"reason":"WorkerFailed","message":"lost worker x","host":"x"}`, present-1)), false, "lost worker x"},
		"just now, but it is the training":    {onLauncher(exits(1, "Error", rankDied, present-1)), false, "rank 1"},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := runningScene(t, kind)
				tc.happen(scene)
				verdict := scene.verdict()
				if waits := verdict.Phase != training.PhaseFailed; waits != tc.waits || waits != (verdict.NextCheck == 200*time.Millisecond) {
					t.Fatalf("%s, next check in %s: %s", verdict.Phase, verdict.NextCheck, verdict.FailureMessage)
				}
				if !strings.Contains(verdict.FailureMessage, tc.cause) {
					t.Errorf("%q is not in %s", tc.cause, verdict.FailureMessage)
				}
			})
		}
	}
}
