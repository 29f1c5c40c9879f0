// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// wantStage checks the stage, and that the job has not finished.
func (sc *scene) wantStage(when string, want plan.Stage) Verdict {
	sc.t.Helper()
	verdict := sc.storeVerdict()
	if verdict.Stage != want || isFinished(verdict) {
		sc.t.Errorf("%s it is %s, stage %s, want %s: %s", when, verdict.Phase, verdict.Stage, want, verdict.FailureMessage)
	}
	return verdict
}

// A resumed job waits until its old objects are deleted.
func TestResumeWaitsForOldPods(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := runningScene(t, kind)
			scene.job.Suspended = true
			scene.wantStage("suspended", plan.Suspended)
			if !scene.previous().Suspended {
				t.Error("the status does not show the suspension")
			}
			scene.everyPod(deleted(present))
			scene.job.Suspended = false
			if verdict := scene.wantStage("resumed with its old pods", plan.Suspended); !verdict.Suspension.Yes || verdict.Phase != training.PhasePending {
				t.Errorf("%+v", verdict)
			}
			scene.observed.Workload = Workload{}
			scene.launcher(exits(143, "Error", rankDied, present+1))
			scene.wantStage("resumed with an old launcher that has finished", plan.Suspended)
			scene.observed.Launchers = nil
			scene.wantStage("resumed with old workers", plan.Suspended)
			scene.observed.Workers = nil
			if verdict := scene.wantStage("resumed with nothing left", plan.Active); verdict.Suspension.Yes || verdict.LauncherPodStatus != nil {
				t.Errorf("%+v", verdict)
			}
			scene.wantStage("resumed, checked again", plan.Active)
			scene.addPods(runs)
			if verdict := scene.wantStage("running again", plan.Active); verdict.Phase != training.PhaseRunning {
				t.Errorf("it is %s", verdict.Phase)
			}
		})
	}
}

// Pods that are deleted between suspension and resume are not missing, even if the
// operator has not observed their deletion.
func TestResumeIgnoresDeletedPods(t *testing.T) {
	for _, kind := range kinds {
		scene := runningScene(t, kind)
		scene.job.Suspended = true
		scene.storeVerdict()
		withoutPods(Workload{})(scene)
		scene.job.Suspended = false
		scene.wantStage(string(kind)+": resumed", plan.Active)
		if len(scene.lookups) > 0 {
			t.Errorf("%s: unexpected lookups %v", kind, scene.lookups)
		}
	}
}

// A launcher that exits because of a suspension has neither succeeded nor failed.
func TestExitBySuspension(t *testing.T) {
	for name, end := range map[string]podOption{
		"with 0":     exits(0, "Completed", "", present+1),
		"with 143":   exits(143, "Error", rankDied, present+1),
		"by SIGKILL": exits(137, "Error", "", present+gracePeriod),
	} {
		for _, kind := range kinds {
			scene := runningScene(t, kind)
			scene.job.Suspended = true
			scene.storeVerdict()
			scene.setTime(present + gracePeriod)
			scene.everyPod(deleted(present), end)
			scene.wantStage(name+" while it is suspended", plan.Suspended)
			scene.job.Suspended = false
			scene.wantStage(name+" and resumed", plan.Suspended)
		}
	}
}

// A launcher that succeeded before the suspension has succeeded.
func TestSuccessBeforeSuspension(t *testing.T) {
	for name, suspend := range map[string]func(*scene){
		"by the user": func(scene *scene) { scene.job.Suspended = true },
		"by a queue":  func(scene *scene) { scene.observed.Workload.Suspended = true },
	} {
		for _, kind := range kinds {
			for _, end := range []podOption{exits(0, "Completed", "", 50), together(exits(0, "Completed", "", 50), deleted(55))} {
				scene := runningScene(t, kind)
				scene.launcher(end)
				suspend(scene)
				if verdict := scene.verdict(); verdict.Phase != training.PhaseSucceeded {
					t.Errorf("%s, suspended %s: it is %s", kind, name, verdict.Phase)
				}
			}
		}
	}
}

// Kueue suspends and resumes the JobSet of a TrainJob.
func TestQueuedTrainJob(t *testing.T) {
	scene := newScene(t, job.KindTrainJob, 2)
	scene.wantStage("submitted", plan.Active)
	scene.observed.Workload = Workload{Exists: true, Suspended: true}
	verdict := scene.wantStage("queued", plan.Held)
	if want := (Condition{Yes: true, Reason: "Queued", Message: "Waiting for Kueue to admit the job: its queue has no free quota"}); verdict.Suspension != want {
		t.Errorf("%+v", verdict.Suspension)
	}
	for name, want := range map[string]string{
		"Suspended":        "True Queued: Waiting for Kueue to admit the job: its queue has no free quota",
		"GangScheduling":   "False Queued: Waiting for Kueue to admit the job: its queue has no free quota",
		"TrainingComplete": "False Queued: Waiting for Kueue to admit the job: its queue has no free quota",
	} {
		if got := scene.condition(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	scene.wantSteps("queued", map[training.TimelineStep]float64{training.StepSubmitted: submitted})

	// The JobSet is not recreated when Kueue resumes it.
	scene.setTime(70)
	scene.observed.Workload.Suspended = false
	if verdict = scene.wantStage("admitted", plan.Active); verdict.Suspension.Yes {
		t.Errorf("%+v", verdict.Suspension)
	}
	scene.wantSteps("admitted", map[training.TimelineStep]float64{training.StepSubmitted: submitted, training.StepAdmitted: 70})
	scene.addPods(runs)
	scene.wantStage("running", plan.Active)

	// Kueue preempts the job: its pods exit, but the job has not failed.
	scene.setTime(80)
	scene.observed.Workload.Suspended = true
	scene.everyPod(deleted(79), exits(143, "Error", rankDied, 80))
	if verdict = scene.wantStage("evicted", plan.Held); verdict.StartTime != nil || !verdict.Suspension.Yes {
		t.Errorf("%+v", verdict)
	}
	scene.observed.Workload.Suspended = false
	scene.wantStage("admitted again, and its old pods are not deleted yet", plan.Held)
	scene.observed.Workload.Suspended = true
	scene.observed.Launchers, scene.observed.Workers = nil, nil
	scene.wantStage("evicted, and its pods are deleted", plan.Held)
	scene.observed.Workload.Suspended = false
	scene.wantStage("admitted again", plan.Active)
	scene.addPods(runs)
	if verdict = scene.wantStage("admitted again", plan.Active); verdict.Phase != training.PhaseRunning {
		t.Errorf("%+v", verdict)
	}
}

// If the JobSet of a queued job is deleted, another one is created only after the old
// pods are deleted. They have not failed.
func TestQueuedJobSetIsDeleted(t *testing.T) {
	scene := runningScene(t, job.KindTrainJob)
	scene.observed.Workload.Suspended = true
	scene.wantStage("evicted", plan.Held)
	scene.observed.Workload = Workload{}
	scene.everyPod(deleted(present))
	scene.wantStage("its JobSet is deleted", plan.Held)
	scene.observed.Launchers, scene.observed.Workers = nil, nil
	scene.wantStage("its pods are deleted", plan.Active)
	scene.wantStage("checked again", plan.Active)
}

// Kueue suspends an MPIJob itself. If a user suspends the launcher's Job, the job waits
// until it is resumed, and nothing is recreated.
func TestSuspendedLauncherJob(t *testing.T) {
	scene := runningScene(t, job.KindMPIJob)
	scene.observed.Workload.Suspended = true
	if verdict := scene.wantStage("with a suspended Job", plan.Held); !verdict.Suspension.Yes || verdict.Phase != training.PhasePending {
		t.Errorf("%+v", verdict)
	}
	scene.everyPod(deleted(present))
	scene.observed.Workload.Suspended = false
	scene.wantStage("released with its old pods", plan.Held)
	scene.observed.Launchers, scene.observed.Workers = nil, nil
	if verdict := scene.wantStage("released", plan.Active); verdict.Suspension.Yes {
		t.Errorf("%+v", verdict)
	}
	scene.job.Suspended = true
	if verdict := scene.wantStage("suspended", plan.Suspended); !verdict.Suspension.Yes {
		t.Errorf("%+v", verdict)
	}
	scene.job.Suspended = false
	scene.wantStage("resumed with its old Job", plan.Suspended)
}

// The cache may show that pods exited before it shows the suspension that stopped them.
func TestDeletionsAreConfirmed(t *testing.T) {
	for name, happen := range map[string]func(*scene){
		"a worker":     onWorker(deleted(55), exits(143, "Error", "", 56)),
		"the launcher": onLauncher(deleted(55), exits(143, "Error", "", 56)),
		"all":          func(scene *scene) { scene.everyPod(deleted(55), exits(143, "Error", "", 56)) },
	} {
		scene := runningScene(t, job.KindTrainJob)
		happen(scene)
		verdict := Of(scene.job, scene.previous(), scene.observed)
		if verdict.Lookup != LookupConfirmation || isFinished(verdict) {
			t.Errorf("%s: needs %q and is %s: %s", name, verdict.Lookup, verdict.Phase, verdict.FailureMessage)
		}
		// The API server has the suspension, the cache had not.
		scene.observed.Workload.Suspended, scene.observed.Confirmed = true, true
		scene.wantStage(name, plan.Held)
	}
}

// A TrainJob that waits in a queue may be suspended by its user as well.
func TestSuspendedWhileQueued(t *testing.T) {
	scene := newScene(t, job.KindTrainJob, 2)
	scene.observed.Workload = Workload{Exists: true, Suspended: true}
	scene.storeVerdict()
	scene.job.Suspended = true
	if verdict := scene.wantStage("suspended", plan.Suspended); verdict.Suspension.Reason != "Suspended" {
		t.Errorf("%+v", verdict.Suspension)
	}
	scene.observed.Workload = Workload{}
	scene.storeVerdict()
	scene.job.Suspended = false
	scene.wantStage("resumed", plan.Active)
}

// A suspension resets the launcher's failure.
func TestSuspensionForgetsLauncher(t *testing.T) {
	for name, suspend := range map[string]func(*scene){
		"by the user": func(scene *scene) { scene.job.Suspended = true },
		"by a queue":  func(scene *scene) { scene.observed.Workload.Suspended = true },
	} {
		scene := runningScene(t, job.KindTrainJob, backoffLimit(1))
		scene.launcher(exits(1, "Error", rankDied, 50))
		scene.storeVerdict()
		scene.observed.Launchers, scene.observed.Workers = nil, nil
		if verdict := scene.storeVerdict(); verdict.LauncherPodStatus == nil {
			t.Errorf("%s: before, nothing is known of the launcher", name)
		}
		suspend(scene)
		if verdict := scene.storeVerdict(); verdict.LauncherPodStatus != nil {
			t.Errorf("%s: of the launcher is known %+v", name, verdict.LauncherPodStatus)
		}
	}
}

func TestInitializing(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := newScene(t, kind, 2, withInitializer)
			verdict := scene.wantStage("submitted", plan.Initializing)
			if want := (Condition{Reason: "Initializing", Message: "The initializer is fetching the dataset and the model"}); verdict.Waiting != want || verdict.Gang != want {
				t.Errorf("%+v", verdict)
			}
			scene.wantSteps("submitted", map[training.TimelineStep]float64{training.StepSubmitted: submitted})
			scene.observed.Initializers = []*corev1.Pod{scene.newPod(training.RoleInitializer, 0, runs)}
			scene.wantStage("fetching", plan.Initializing)

			// The kubelet restarts it a few times.
			scene.observed.Initializers[0] = scene.newPod(training.RoleInitializer, 0, runs, crashes(1, 2, 40))
			if verdict = scene.wantStage("crashed twice", plan.Initializing); verdict.Waiting.Reason != "CrashLoopBackOff" {
				t.Errorf("%+v", verdict.Waiting)
			}
			scene.observed.Initializers[0] = scene.newPod(training.RoleInitializer, 0, runs, restarted(1, "", 2, 40))
			if verdict = scene.wantStage("running again", plan.Initializing); verdict.Waiting.Reason != "Initializing" {
				t.Errorf("%+v", verdict.Waiting)
			}

			scene.setTime(70)
			scene.observed.Initializers[0] = scene.newPod(training.RoleInitializer, 0, runs, exits(0, "Completed", "", 69))
			scene.wantStage("fetched", plan.Active)
			scene.wantSteps("fetched", map[training.TimelineStep]float64{training.StepSubmitted: submitted, training.StepAdmitted: 70})
			scene.addPods(runs)
			scene.observed.Initializers = nil
			scene.wantStage("running, and the initializer's pod is deleted", plan.Active)
		})
	}
}

// A failed initializer pod is replaced, up to the job's backoff limit.
func TestInitializerIsRestarted(t *testing.T) {
	for name, state := range map[string]podOption{
		"evicted":              terminatedByNode("Evicted", "low on memory", 50),
		"preempted":            disrupted("PreemptionByScheduler", "preempting", 50),
		"crashed in its pod":   crashes(1, 3, 50),
		"its pod failed":       exits(1, "Error", "no route to host", 50),
		"failed, then deleted": together(exits(1, "Error", "", 50), deleted(51)),
	} {
		t.Run(name, func(t *testing.T) {
			scene := newScene(t, job.KindTrainJob, 2, withInitializer, backoffLimit(1))
			scene.storeVerdict()
			scene.observed.Initializers = []*corev1.Pod{scene.newPod(training.RoleInitializer, 0, runs, state)}
			verdict := scene.wantStage("failed", plan.Restarting)
			if restart := scene.previous().Restart; restart == nil || restart.Count != 1 || restart.Reason != training.FailureTraining || !restart.DueTime.Time.Equal(at(present+10)) || verdict.NextCheck != 10*time.Second {
				t.Fatalf("restart %+v, next check in %s", restart, verdict.NextCheck)
			}
			scene.wantStage("checked again", plan.Restarting)
			scene.setTime(present + 10)
			if !isPodFinished(scene.observed.Initializers[0]) {
				scene.wantStage("due, and the old pod still runs", plan.Restarting)
				scene.observed.Initializers = nil
			}
			// A pod that has finished is kept for its log.
			scene.wantStage("due", plan.Initializing)
			scene.start = 1
			scene.observed.Initializers = append(scene.observed.Initializers, scene.newPod(training.RoleInitializer, 0, runs))
			if verdict = scene.wantStage("the second pod runs", plan.Initializing); verdict.Waiting.Reason != "Initializing" {
				t.Errorf("it waits for %+v", verdict.Waiting)
			}
			last := len(scene.observed.Initializers) - 1
			scene.observed.Initializers[last] = scene.newPod(training.RoleInitializer, 0, runs, exits(1, "Error", "no route to host", present+20))
			if verdict = scene.storeVerdict(); verdict.Phase != training.PhaseFailed || verdict.FailureReason != training.FailureTraining {
				t.Errorf("the second pod failed: %s, stage %s", verdict.Phase, verdict.Stage)
			}
		})
	}
}

// A restart does not run the initializer again.
func TestRestartKeepsFetchedData(t *testing.T) {
	scene := newScene(t, job.KindTrainJob, 2, withInitializer, backoffLimit(1))
	scene.observed.Initializers = []*corev1.Pod{scene.newPod(training.RoleInitializer, 0, runs, exits(0, "Completed", "", 20))}
	scene.addPods(runs)
	scene.storeVerdict()
	scene.worker(1, outOfMemory(50))
	scene.wantStage("failed", plan.Restarting)
	scene.setTime(present + 10)
	scene.observed.Launchers, scene.observed.Workers = nil, nil
	scene.wantStage("restarted", plan.Active)
}
