package diagnosis

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/job"
)

// A TrainJob is begun anew as a whole, by JobSet, as often as it may.
func TestJobSetBeginsAnew(t *testing.T) {
	ends := map[string]func(*scene){
		"a worker fails":          happensTo(outOfMemory(50)),
		"a worker is preempted":   happensTo(interrupted("PreemptionByScheduler", "", 50)),
		"the launcher fails":      launcherEnds(exits(1, "Error", rankDied, 50)),
		"the launcher is evicted": launcherEnds(endedByNode("Evicted", "", 50)),
		"the launcher is stopped and its command knows how to stop": launcherEnds(deleted(50), exits(0, "Completed", "", 51)),
	}
	for name, happen := range ends {
		for attempt, limit := range map[int]int32{0: 1, 1: 2, 2: 5} {
			t.Run(fmt.Sprintf("%s in attempt %d of %d", name, attempt, limit), func(t *testing.T) {
				scene := runningScene(t, job.KindTrainJob, backoffLimit(limit))
				scene.everyPod(ofAttempt(attempt))
				happen(scene)
				if verdict := scene.settle(); hasEnded(verdict) {
					t.Fatalf("%s: %s", verdict.Phase, verdict.FailureMessage)
				}
				// The next attempt is told from this one by its label alone.
				scene.everyPod(func(pod *corev1.Pod) { pod.Name = "z-" + pod.Name })
				before := [][]*corev1.Pod{scene.seen.Launchers, scene.seen.Workers}
				scene.addPods(runs)
				scene.everyPod(ofAttempt(attempt + 1))
				scene.seen.Launchers, scene.seen.Workers = append(scene.seen.Launchers, before[0]...), append(scene.seen.Workers, before[1]...)
				if verdict := scene.settle(); verdict.Phase != training.PhaseRunning || verdict.ReadyWorkers != "2/2" {
					t.Fatalf("the next attempt is %s with %s workers: %s", verdict.Phase, verdict.ReadyWorkers, verdict.FailureMessage)
				}
			})
		}
	}
}

func TestTheLastAttemptOfAJobSet(t *testing.T) {
	for name, tc := range map[string]struct {
		limit   int32
		attempt int
		gaveUp  string
	}{
		"no restarts":                       {0, 0, ""},
		"one restart":                       {1, 1, ""},
		"more attempts than were asked for": {1, 2, ""},
		"JobSet gives up before":            {5, 1, "jobset failed due to reaching max number of restarts"},
	} {
		t.Run(name, func(t *testing.T) {
			for who, happen := range map[training.FailureReason]func(*scene){
				training.FailureWorker:   happensTo(outOfMemory(50)),
				training.FailureTraining: launcherEnds(exits(1, "Error", rankDied, 50)),
				training.FailureLauncher: launcherEnds(endedByNode("Evicted", "", 50)),
			} {
				scene := runningScene(t, job.KindTrainJob, backoffLimit(tc.limit))
				scene.everyPod(ofAttempt(tc.attempt))
				happen(scene)
				scene.seen.Workload.Failed = tc.gaveUp
				if verdict := scene.look(); verdict.FailureReason != who {
					t.Errorf("%s with %q, want %s: %s", verdict.Phase, verdict.FailureReason, who, verdict.FailureMessage)
				}
			}
		})
	}
}

func TestLabelsThatAreNoAttempts(t *testing.T) {
	for _, label := range []string{"", "x", "-1", "99999999999999999999", "1.5"} {
		scene := runningScene(t, job.KindTrainJob, backoffLimit(1))
		scene.everyPod(func(pod *corev1.Pod) { pod.Labels[restartAttempt] = label })
		if label != "-1" {
			scene.worker(1, outOfMemory(50))
		}
		if verdict := scene.look(); hasEnded(verdict) {
			t.Errorf("%q: %s", label, verdict.FailureMessage)
		}
	}
}

// The batch Job of an MPIJob's launcher makes a new pod after each that failed.
func TestAnotherLauncherPod(t *testing.T) {
	for _, limit := range []int32{0, 1, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			scene := runningScene(t, job.KindMPIJob, backoffLimit(limit))
			for try := range limit {
				scene.launcher(named(fmt.Sprintf("train-launcher-%d", try)), exits(1, "Error", rankDied, float64(30+try)))
				if verdict := scene.settle(); hasEnded(verdict) || verdict.Phase != training.PhasePending {
					t.Fatalf("after %d of %d it is %s: %s", try, limit, verdict.Phase, verdict.FailureMessage)
				}
				if status := scene.previous().LauncherPodStatus; status.Reason != string(training.FailureTraining) || !strings.Contains(status.Message, "rank 1") {
					t.Errorf("the launcher's status is %+v", status)
				}
				scene.seen.Launchers = append(scene.seen.Launchers, scene.newPod(training.RoleLauncher, 0, runs, createdAt(float64(35+try))))
				if verdict := scene.settle(); verdict.Phase != training.PhaseRunning || verdict.Launcher != (Counts{Active: 1, Failed: try + 1}) {
					t.Fatalf("try %d is %s with %+v", try, verdict.Phase, verdict.Launcher)
				}
			}
			scene.launcher(exits(1, "Error", rankDied, 50))
			if verdict := scene.settle(); verdict.FailureReason != training.FailureTraining || !verdict.CompletionTime.Time.Equal(at(50)) {
				t.Errorf("%s %s: %s", verdict.Phase, verdict.FailureReason, verdict.FailureMessage)
			}
		})
	}
}

// A launcher that is started again in its pod is for its Job to count.
func TestALauncherIsStartedAgainInItsPod(t *testing.T) {
	for _, limit := range []int32{0, 3} {
		scene := runningScene(t, job.KindMPIJob, backoffLimit(limit), restartPolicies(corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))
		scene.launcher(exitsFirst(1, "Error", rankDied, 40))
		if verdict := scene.settle(); hasEnded(verdict) {
			t.Fatalf("before it is started again: %s", verdict.FailureMessage)
		}
		scene.launcher(crashes(1, 9, 40))
		container(scene.launcher()).LastTerminationState.Terminated.Message = rankDied
		if verdict := scene.settle(); hasEnded(verdict) {
			t.Fatalf("before its Job gives up: %s", verdict.FailureMessage)
		}
		if status := scene.previous().LauncherPodStatus; !strings.Contains(status.Message, "rank 1 exited") {
			t.Errorf("what is known of it is %+v", status)
		}
		// The Job deletes the pod, and with it all that is known, except for the status.
		scene.seen.Launchers = nil
		if verdict := scene.settle(); hasEnded(verdict) || verdict.LauncherPodStatus == nil {
			t.Fatalf("%s with %+v: %s", verdict.Phase, verdict.LauncherPodStatus, verdict.FailureMessage)
		}
		scene.seen.Workload.Failed, scene.seen.Workload.FailedAt = "Job has reached the specified backoff limit", at(55)
		verdict := scene.settle()
		if verdict.FailureReason != training.FailureTraining || !strings.Contains(verdict.FailureMessage, "rank 1 exited") || !verdict.CompletionTime.Time.Equal(at(55)) {
			t.Errorf("%s %s at %v: %s", verdict.Phase, verdict.FailureReason, verdict.CompletionTime, verdict.FailureMessage)
		}
	}
}

// A worker that may be started again in its pod may crash a few times.
func TestAWorkerIsStartedAgainInItsPod(t *testing.T) {
	often := restartPolicies(corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)
	for name, tc := range map[string]struct {
		state podOption
		fails bool
	}{
		"its container has just ended":      {exitsFirst(1, "Error", "", 50), false},
		"it runs again":                     {restarted(1, "", 5, 50), false},
		"it has crashed as often as it may": {crashes(1, 2, 50), false},
		"it has crashed more often":         {crashes(1, 3, 50), true},
		"its pod has failed":                {exits(1, "Error", "", 50), true},
	} {
		t.Run(name, func(t *testing.T) {
			scene := runningScene(t, job.KindMPIJob, backoffLimit(2), often)
			scene.worker(1, tc.state)
			verdict := scene.settle()
			if failed := verdict.Phase == training.PhaseFailed; failed != tc.fails {
				t.Fatalf("%s: %s", verdict.Phase, verdict.FailureMessage)
			}
			if !tc.fails && verdict.NextCheck != 0 {
				t.Errorf("looks again in %s, although only the kubelet can change anything", verdict.NextCheck)
			}
		})
	}
}

// A launcher of an MPIJob that loses its place gets another, as long as it may.
func TestALauncherLosesItsPlace(t *testing.T) {
	for name, state := range map[string]podOption{
		"it is preempted":          interrupted("PreemptionByScheduler", "", 50),
		"it is evicted":            endedByNode("Evicted", "", 50),
		"its init container fails": initExits("unpack", 1, "Error", "", 50),
	} {
		t.Run(name, func(t *testing.T) {
			scene := runningScene(t, job.KindMPIJob, backoffLimit(1))
			scene.launcher(state)
			if verdict := scene.look(); hasEnded(verdict) {
				t.Errorf("%s: %s", verdict.FailureReason, verdict.FailureMessage)
			}
			scene.seen.Workload.Failed = "Job has reached the specified backoff limit"
			if verdict := scene.look(); verdict.FailureReason != training.FailureLauncher {
				t.Errorf("its Job gave up: %s %s", verdict.FailureReason, verdict.FailureMessage)
			}
		})
	}
}

func hasEnded(verdict Verdict) bool { return (&Previous{Progress: verdict.Progress}).Finished() }

// JobSet deletes the pods of an attempt that has failed within the second in which it
// did. Its cause was told, and stays.
func TestWhyAnAttemptFailedStaysWhenItsPodsGo(t *testing.T) {
	scene := runningScene(t, job.KindTrainJob, backoffLimit(1))
	scene.launcher(exits(1, "Error", rankDied, 50.2))
	told := scene.settle().LauncherPodStatus
	if told.Reason != string(training.FailureTraining) {
		t.Fatalf("it is told as %+v", told)
	}
	scene.everyPod(deleted(50.4))
	if now := scene.settle().LauncherPodStatus; *now != *told {
		t.Errorf("it was told as %+v, and is now %+v", told, now)
	}
}

// Of two launchers that were made within one second the one that has not ended is the
// newer, whatever their names are.
func TestTwoLaunchersOfOneSecond(t *testing.T) {
	for _, name := range []string{"a", "z"} {
		scene := runningScene(t, job.KindMPIJob, backoffLimit(1))
		ended := scene.newPod(training.RoleLauncher, 0, named(name), runs, exits(1, "Error", "", 50))
		ended.CreationTimestamp = scene.seen.Launchers[0].CreationTimestamp
		scene.seen.Launchers = append(scene.seen.Launchers, ended)
		if verdict := scene.settle(); verdict.LauncherPodStatus.Name == name || hasEnded(verdict) {
			t.Errorf("%s with launcher %+v", verdict.Phase, verdict.LauncherPodStatus)
		}
	}
}
