// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

func isFinished(verdict Verdict) bool { return (&Previous{Progress: verdict.Progress}).Finished() }

// nextStart deletes what a restart replaces, and creates the pods of the next start.
func (sc *scene) nextStart(state podOption) {
	sc.t.Helper()
	sc.start = sc.previous().Restart.Count
	if sc.job.Kind.Traits().RestartsAsWhole {
		sc.addPods(state)
		return
	}
	launcher := sc.newPod(training.RoleLauncher, 0, state, createdAt(sc.observed.Now.Sub(at(0)).Seconds()))
	sc.observed.Launchers = append(slices.DeleteFunc(sc.observed.Launchers, func(pod *corev1.Pod) bool { return !isPodFinished(pod) }), launcher)
}

// A job is restarted after a retryable failure.
func TestRestarts(t *testing.T) {
	for name, tc := range map[string]struct {
		happen  func(*scene)
		kinds   []job.Kind
		reason  training.FailureReason
		message string
	}{
		"launcher fails":                     {onLauncher(exits(1, "Error", rankDied, 50)), kinds, training.FailureTraining, "rank 1 exited with code 1"},
		"launcher is evicted":                {onLauncher(terminatedByNode("Evicted", "", 50)), kinds, training.FailureLauncher, "was evicted from its node"},
		"launcher is preempted":              {onLauncher(disrupted("PreemptionByScheduler", "preempting", 50)), kinds, training.FailureLauncher, "preempting"},
		"launcher's init container fails":    {onLauncher(initExits("unpack", 1, "Error", "", 50)), kinds, training.FailureLauncher, "in its container unpack"},
		"launcher is deleted":                {onLauncher(deleted(50), exits(143, "Error", "", 51)), kinds, training.FailureLauncher, "was deleted while the job ran"},
		"launcher is missing":                {func(scene *scene) { scene.observed.Launchers = nil }, kinds, training.FailureLauncher, "is missing: it was deleted"},
		"launcher is deleted, not scheduled": {onLauncher(deletedUnscheduled(50)), kinds, training.FailureLauncher, "was deleted while the job ran"},
		"worker fails":                       {onWorker(outOfMemory(50)), onlyTrainJob, training.FailureWorker, "exceeded its memory limit"},
		"worker is deleted":                  {onWorker(deleted(50)), onlyTrainJob, training.FailureWorker, "was deleted while the job ran"},
		"worker is missing":                  {func(scene *scene) { scene.observed.Workers = scene.observed.Workers[:1] }, onlyTrainJob, training.FailureWorker, "Worker 1 (pod {worker 1}) is missing"},
		"worker is drained":                  {onWorker(disrupted("EvictionByEvictionAPI", "evicting", 50), deleted(50)), onlyTrainJob, training.FailureWorker, "Its node is being drained"},
		"worker is deleted, the other one exited": {func(scene *scene) {
			scene.worker(0, deleted(51), exits(143, "Error", "", 51))
			scene.observed.Workers = scene.observed.Workers[:1]
		}, onlyTrainJob, training.FailureWorker, "Worker 1 (pod {worker 1}) was deleted"},
	} {
		for _, kind := range tc.kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := runningScene(t, kind, backoffLimit(1))
				tc.happen(scene)
				message := scene.expand(tc.message)
				verdict := scene.storeVerdict()
				if verdict.Stage != plan.Restarting || verdict.Phase != training.PhasePending || verdict.FailureReason != "" {
					t.Fatalf("%s, stage %s, failed with %q: %s", verdict.Phase, verdict.Stage, verdict.FailureReason, verdict.FailureMessage)
				}
				restart := scene.previous().Restart
				if restart == nil || restart.Count != 1 || restart.Reason != tc.reason || !strings.Contains(restart.Message, message) || !restart.DueTime.Time.Equal(at(present+10)) {
					t.Fatalf("restart %+v, want %s with %q", restart, tc.reason, message)
				}
				if verdict.NextCheck != 10*time.Second {
					t.Errorf("next check in %s", verdict.NextCheck)
				}
				want := "Restart 1 of 1 is due after a failure: " + restart.Message
				if verdict.Waiting != (Condition{Reason: "Restarting", Message: want}) || verdict.Gang != verdict.Waiting || verdict.WorkersReady.Yes || verdict.LauncherReady.Yes {
					t.Errorf("it waits for %+v", verdict.Waiting)
				}
				if !verdict.StartTime.Time.Equal(at(scheduled)) {
					t.Errorf("it has started at %v", verdict.StartTime)
				}

				scene.setTime(present + 10)
				scene.nextStart(runs)
				if verdict = scene.storeVerdict(); verdict.Phase != training.PhaseRunning || verdict.Stage != plan.Active || scene.previous().Restart.Count != 1 {
					t.Fatalf("the next start is %s, stage %s: %s", verdict.Phase, verdict.Stage, verdict.FailureMessage)
				}
				scene.launcher(exits(0, "Completed", "", present+20))
				if verdict = scene.storeVerdict(); verdict.Phase != training.PhaseSucceeded || verdict.Restart.Count != 1 {
					t.Errorf("then it is %s after %+v", verdict.Phase, verdict.Restart)
				}
			})
		}
	}
}

// deletedUnscheduled is a pod that was deleted before it was scheduled: only the
// operator removes its finalizer.
func deletedUnscheduled(second float64) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
		deleted(second)(pod)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(stamp(second)), new(int64(0))
	}
}

// Failures that a restart cannot fix, or that exceed the job's deadline.
func TestNeverRestarts(t *testing.T) {
	for name, tc := range map[string]struct {
		start   podOption
		options []option
		happen  func(*scene)
		kinds   []job.Kind
		reason  training.FailureReason
	}{
		"worker of an MPIJob fails":       {runs, nil, onWorker(outOfMemory(50)), onlyMPIJob, training.FailureWorker},
		"worker of an MPIJob is deleted":  {runs, nil, onWorker(deleted(50)), onlyMPIJob, training.FailureWorker},
		"worker of an MPIJob is missing":  {runs, nil, func(scene *scene) { scene.observed.Workers = scene.observed.Workers[:1] }, onlyMPIJob, training.FailureWorker},
		"quota":                           {nothing, nil, refusedUntil(present+60, Refusal{Role: training.RoleWorker, Object: "Pod x", Message: exceeded, Quota: true}), kinds, training.FailureResourceQuota},
		"gang timeout":                    {unschedulable(noGPUs), nil, later(created+300, func(*scene) {}), kinds, training.FailureGangSchedulingTimeout},
		"deadline":                        {runs, []option{deadline(100)}, pastDeadline(func(*scene) {}), kinds, training.FailureTraining},
		"refusal":                         {nothing, nil, refused(Refusal{Role: training.RoleWorker, Object: "Pod x", Message: "violates PodSecurity"}), kinds, training.FailureWorker},
		"refusal of the launcher":         {nothing, nil, refused(Refusal{Role: training.RoleLauncher, Object: "Pod x", Message: "violates PodSecurity"}), kinds, training.FailureLauncher},
		"image name that cannot be":       {pullsImage, nil, onWorker(waits("InvalidImageName", "")), kinds, training.FailureWorker},
		"image that cannot be pulled":     {pullsImage, nil, later(impatient, onLauncher(waits("ErrImagePull", ""))), kinds, training.FailureLauncher},
		"worker that crashes in its pod":  {runs, []option{restartPolicies(corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)}, onWorker(crashes(1, 4, 50)), kinds, training.FailureWorker},
		"workload is deleted":             {runs, nil, withoutPods(Workload{}), kinds, training.FailureLauncher},
		"workload is deleted, pods exist": {runs, nil, func(scene *scene) { scene.observed.Workload = Workload{} }, kinds, training.FailureLauncher},
	} {
		for _, kind := range tc.kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := startedScene(t, kind, tc.start, append(tc.options, backoffLimit(3))...)
				tc.happen(scene)
				if verdict := scene.storeVerdict(); verdict.Phase != training.PhaseFailed || verdict.FailureReason != tc.reason || verdict.Restart != nil {
					t.Errorf("%s %s, restart %+v: %s", verdict.Phase, verdict.FailureReason, verdict.Restart, verdict.FailureMessage)
				}
			})
		}
	}
}

// The restart begins after the pause, when all pods of the last start are deleted.
func TestRestartWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		after  float64
		happen func(*scene)
		// restarts are the kinds that are started then.
		restarts []job.Kind
	}{
		"before it is due, old pods are deleted": {present + 9, func(scene *scene) { scene.observed.Launchers, scene.observed.Workers = nil, nil }, nil},
		"due, old pods run":                      {present + 10, onLauncher(runs), nil},
		"due, old pods are being deleted":        {present + 40, func(scene *scene) { scene.everyPod(runs, deleted(present)) }, nil},
		"due, the old launcher has finished":     {present + 10, func(*scene) {}, onlyMPIJob},
		"due, only an old worker is left":        {present + 10, func(scene *scene) { scene.observed.Launchers = nil }, onlyMPIJob},
		"due, only an old launcher is left":      {present + 10, func(scene *scene) { scene.observed.Workers = nil }, onlyMPIJob},
		"due, the old launcher is being deleted": {present + 10, onLauncher(runs, deleted(present)), nil},
		"due, old pods are deleted":              {present + 10, func(scene *scene) { scene.observed.Launchers, scene.observed.Workers = nil, nil }, onlyTrainJob},
		"long after, old pods are deleted":       {present + 5000, func(scene *scene) { scene.observed.Launchers, scene.observed.Workers = nil, nil }, onlyTrainJob},
	} {
		for _, kind := range kinds {
			// A restart keeps the workers of an MPIJob.
			if kind == job.KindMPIJob && strings.Contains(name, "old pods are deleted") {
				continue
			}
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := runningScene(t, kind, backoffLimit(2))
				scene.launcher(exits(1, "Error", rankDied, 50))
				scene.storeVerdict()
				scene.setTime(tc.after)
				tc.happen(scene)
				want := plan.Restarting
				if slices.Contains(tc.restarts, kind) {
					want = plan.Active
				}
				if verdict := scene.verdict(); kind == job.KindTrainJob || len(scene.observed.Workers) > 0 {
					if verdict.Stage != want || verdict.Restart.Count != 1 {
						t.Errorf("stage %s with %+v, want %s", verdict.Stage, verdict.Restart, want)
					}
				}
			})
		}
	}
}

// The pause doubles with each restart, up to six minutes. At the limit the job fails.
func TestRestartPauses(t *testing.T) {
	pauses := []float64{10, 20, 40, 80, 160, 320, 360, 360}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := runningScene(t, kind, backoffLimit(int32(len(pauses))))
			now := float64(present)
			for i, pause := range pauses {
				scene.launcher(exits(1, "Error", rankDied, now-1))
				verdict := scene.storeVerdict()
				if restart := scene.previous().Restart; restart == nil || restart.Count != int32(i+1) || !restart.DueTime.Time.Equal(at(now+pause)) {
					t.Fatalf("restart %d: %s with %+v, want it due at %v", i+1, verdict.Phase, restart, at(now+pause))
				}
				now += pause
				scene.setTime(now)
				scene.nextStart(runs)
				if verdict = scene.storeVerdict(); verdict.Phase != training.PhaseRunning {
					t.Fatalf("start %d is %s, stage %s", i+1, verdict.Phase, verdict.Stage)
				}
			}
			scene.launcher(exits(1, "Error", rankDied, now-1))
			verdict := scene.storeVerdict()
			if verdict.Phase != training.PhaseFailed || verdict.FailureReason != training.FailureTraining || !strings.Contains(verdict.FailureMessage, "rank 1 exited") {
				t.Errorf("%s %s: %s", verdict.Phase, verdict.FailureReason, verdict.FailureMessage)
			}
			if verdict.Restart.Count != int32(len(pauses)) {
				t.Errorf("restart %+v", verdict.Restart)
			}
		})
	}
}

func TestRestartPause(t *testing.T) {
	for _, tc := range []struct {
		first    time.Duration
		restarts int32
		want     time.Duration
	}{
		{0, 0, 0},
		{0, 100, 0},
		{time.Second, 0, time.Second},
		{time.Second, 3, 8 * time.Second},
		{time.Second, 1 << 30, maxRestartPause},
		{time.Hour, 0, maxRestartPause},
		{time.Hour, 1, maxRestartPause},
	} {
		if got := restartPause(tc.first, tc.restarts); got != tc.want {
			t.Errorf("%s after %d restarts: %s, want %s", tc.first, tc.restarts, got, tc.want)
		}
	}
}

// The deadline counts from the first start, and also applies between two starts.
func TestDeadlineBetweenStarts(t *testing.T) {
	for _, kind := range kinds {
		scene := runningScene(t, kind, backoffLimit(5), deadline(present+5-scheduled))
		scene.launcher(exits(1, "Error", rankDied, 50))
		if verdict := scene.storeVerdict(); verdict.Stage != plan.Restarting || verdict.NextCheck != 5*time.Second {
			t.Errorf("%s: stage %s, next check in %s", kind, verdict.Stage, verdict.NextCheck)
		}
		scene.setTime(present + 5)
		verdict := scene.storeVerdict()
		if verdict.Phase != training.PhaseFailed || !strings.Contains(verdict.FailureMessage, "Deadline exceeded") || verdict.Restart.Count != 1 {
			t.Errorf("%s: %s, restart %+v: %s", kind, verdict.Phase, verdict.Restart, verdict.FailureMessage)
		}
		if !slices.Contains(scene.lookups, LookupConfirmation) {
			t.Errorf("%s: nothing was confirmed", kind)
		}
	}
}

// A failure after the deadline fails the job without a restart.
func TestFailureAfterDeadline(t *testing.T) {
	for _, kind := range kinds {
		scene := runningScene(t, kind, backoffLimit(5), deadline(present+5-scheduled))
		scene.launcher(exits(1, "Error", rankDied, present+6))
		scene.setTime(present + 6)
		verdict := scene.storeVerdict()
		if verdict.Phase != training.PhaseFailed || verdict.FailureReason != training.FailureTraining || !strings.Contains(verdict.FailureMessage, "rank 1 exited") || verdict.Restart != nil {
			t.Errorf("%s: %s %s, restart %+v: %s", kind, verdict.Phase, verdict.FailureReason, verdict.Restart, verdict.FailureMessage)
		}
	}
}

// A suspension keeps the count of restarts.
func TestSuspensionKeepsRestarts(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := runningScene(t, kind, backoffLimit(1))
			scene.launcher(exits(1, "Error", rankDied, 50))
			scene.storeVerdict()
			scene.job.Suspended = true
			scene.wantStage("suspended", plan.Suspended)
			withoutPods(Workload{})(scene)
			scene.wantStage("without pods", plan.Suspended)
			scene.setTime(present + 5)
			scene.job.Suspended = false
			scene.wantStage("resumed before the restart is due", plan.Restarting)
			scene.setTime(present + 100)
			scene.wantStage("resumed", plan.Active)
			scene.start = 1
			scene.addPods(runs)
			scene.wantStage("running again", plan.Active)
			scene.launcher(exits(1, "Error", rankDied, present+100))
			if verdict := scene.storeVerdict(); verdict.Phase != training.PhaseFailed || verdict.Restart.Count != 1 {
				t.Errorf("%s, restart %+v", verdict.Phase, verdict.Restart)
			}
		})
	}
}

// Users of MPIJobs know the condition Restarting from mpi-operator.
func TestConditionRestarting(t *testing.T) {
	scene := runningScene(t, job.KindMPIJob, backoffLimit(1))
	if found := scene.condition("Restarting"); found != "" {
		t.Errorf("before: %s", found)
	}
	scene.launcher(exits(1, "Error", rankDied, 50))
	scene.storeVerdict()
	message := scene.expand("Restart 1 of 1 is due after a failure: The launcher (pod train-launcher-r0 on node node-launcher): rank 1 exited with code 1. " +
		"See the launcher's log: kubectl logs train-launcher-r0 -c main -n team.")
	for kind, want := range map[string]string{
		"Restarting": "True MPIJobRestarting: " + message,
		"Pending":    "True Restarting: " + message,
		"Running":    "False Pending: " + message,
	} {
		if found := scene.condition(kind); found != want {
			t.Errorf("%s is %q\nwant %q", kind, found, want)
		}
	}
	scene.setTime(present + 10)
	scene.nextStart(runs)
	scene.storeVerdict()
	if found := scene.condition("Restarting"); found != "False MPIJobRestarted: The job is not being restarted" {
		t.Errorf("after: %s", found)
	}
	scene.launcher(exits(0, "Completed", "", present+20))
	scene.storeVerdict()
	if found := scene.condition("Restarting"); !strings.HasPrefix(found, "False") {
		t.Errorf("succeeded: %s", found)
	}
}

// The restart of an MPIJob's launcher keeps the workers, and keeps the old launcher's pod
// for its log.
func TestRestartOfLauncher(t *testing.T) {
	for _, limit := range []int32{0, 1, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			scene := runningScene(t, job.KindMPIJob, backoffLimit(limit))
			for try := range limit {
				now := float64(1000 * (try + 1))
				scene.launcher(exits(1, "Error", rankDied, now))
				scene.setTime(now)
				if verdict := scene.storeVerdict(); verdict.Stage != plan.Restarting {
					t.Fatalf("after %d of %d it is %s: %s", try, limit, verdict.Phase, verdict.FailureMessage)
				}
				if status := scene.previous().LauncherPodStatus; status.Reason != string(training.FailureTraining) || !strings.Contains(status.Message, "rank 1") {
					t.Errorf("the launcher's status is %+v", status)
				}
				scene.setTime(now + 500)
				if verdict := scene.storeVerdict(); verdict.Stage != plan.Active || verdict.Phase != training.PhasePending || verdict.ReadyWorkers != "2/2" || len(scene.lookups) > 0 {
					t.Fatalf("before launcher %d is created it is %s, needs %v, %s workers: %s", try+1, verdict.Phase, scene.lookups, verdict.ReadyWorkers, verdict.FailureMessage)
				}
				scene.nextStart(nothing)
				if verdict := scene.storeVerdict(); isFinished(verdict) || verdict.NextCheck != 300*time.Second {
					t.Fatalf("launcher %d waits to be scheduled: %s, next check in %s: %s", try+1, verdict.Phase, verdict.NextCheck, verdict.FailureMessage)
				}
				scene.launcher(runs)
				if verdict := scene.storeVerdict(); verdict.Phase != training.PhaseRunning || verdict.Launcher != (Counts{Active: 1, Ready: 1, Failed: try + 1}) {
					t.Fatalf("launcher %d is %s with %+v", try+1, verdict.Phase, verdict.Launcher)
				}
				if name := scene.previous().LauncherPodStatus.Name; name != fmt.Sprintf("train-launcher-r%d", try+1) {
					t.Errorf("the launcher is %s", name)
				}
			}
			scene.setTime(9000)
			scene.launcher(exits(1, "Error", rankDied, 8999))
			if verdict := scene.storeVerdict(); verdict.FailureReason != training.FailureTraining || !verdict.CompletionTime.Time.Equal(at(8999)) {
				t.Errorf("%s %s: %s", verdict.Phase, verdict.FailureReason, verdict.FailureMessage)
			}
		})
	}
}

// Pods of other starts are ignored.
func TestPodsOfOtherStarts(t *testing.T) {
	for _, kind := range kinds {
		scene := runningScene(t, kind, backoffLimit(1))
		scene.launcher(exits(1, "Error", rankDied, 50))
		scene.storeVerdict()
		scene.setTime(present + 10)
		scene.nextStart(runs)
		scene.storeVerdict()
		old := scene.newPod(training.RoleLauncher, 0, exits(1, "Error", "", 50), ofRestart("0"), named("train-z"), createdAt(present+20))
		scene.observed.Launchers = append(scene.observed.Launchers, old)
		verdict := scene.storeVerdict()
		if isFinished(verdict) || verdict.Restart.Count != 1 || verdict.LauncherPodStatus == nil && kind == job.KindMPIJob {
			t.Errorf("%s: %s, restart %+v", kind, verdict.Phase, verdict.Restart)
		}
	}
}

func TestInvalidRestartLabels(t *testing.T) {
	for _, label := range []string{"", "x", "-1", "99999999999999999999", "1.5"} {
		scene := runningScene(t, job.KindTrainJob, backoffLimit(1))
		scene.everyPod(ofRestart(label))
		if verdict := scene.storeVerdict(); verdict.Phase != training.PhaseRunning {
			t.Errorf("%q: %s, stage %s", label, verdict.Phase, verdict.Stage)
		}
	}
}

// The kubelet may restart a worker a few times, if its restart policy allows it.
func TestKubeletRestartsWorker(t *testing.T) {
	often := restartPolicies(corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)
	for name, tc := range map[string]struct {
		state podOption
		fails bool
	}{
		"its container has just failed":     {exitsFirst(1, "Error", "", 50), false},
		"it runs again":                     {restarted(1, "", 5, 50), false},
		"it has crashed as often as it may": {crashes(1, 2, 50), false},
		"it has crashed more often":         {crashes(1, 3, 50), true},
		"its pod has failed":                {exits(1, "Error", "", 50), true},
	} {
		t.Run(name, func(t *testing.T) {
			scene := runningScene(t, job.KindMPIJob, backoffLimit(2), often)
			scene.worker(1, tc.state)
			verdict := scene.storeVerdict()
			if failed := verdict.Phase == training.PhaseFailed; failed != tc.fails {
				t.Fatalf("%s: %s", verdict.Phase, verdict.FailureMessage)
			}
			if !tc.fails && verdict.NextCheck != 0 {
				t.Errorf("next check in %s, although only the kubelet can change anything", verdict.NextCheck)
			}
		})
	}
}

// The reason of a restart stays if the pods are deleted in the same second.
func TestRestartKeepsReason(t *testing.T) {
	scene := runningScene(t, job.KindTrainJob, backoffLimit(1))
	scene.launcher(exits(1, "Error", rankDied, 50.2))
	scene.storeVerdict()
	reported := *scene.previous().Restart
	if reported.Reason != training.FailureTraining {
		t.Fatalf("restart %+v", reported)
	}
	scene.everyPod(deleted(50.4))
	scene.storeVerdict()
	withoutPods(Workload{Exists: true})(scene)
	scene.storeVerdict()
	if now := *scene.previous().Restart; now != reported {
		t.Errorf("it was %+v, and is now %+v", reported, now)
	}
}

// The message of a restart may quote a program and is redacted.
func TestRestartIsRedacted(t *testing.T) {
	for _, kind := range kinds {
		scene := runningScene(t, kind, backoffLimit(1))
		scene.launcher(exits(1, "Error", `{"reason":"TrainingError","message":"the login failed: password=hunter2"}`, 50))
		scene.storeVerdict()
		if restart := scene.previous().Restart; restart == nil || strings.Contains(restart.Message, "hunter2") || !strings.Contains(restart.Message, "password=[redacted]") {
			t.Errorf("%s: restart %+v", kind, restart)
		}
	}
}
