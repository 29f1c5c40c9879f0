// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// The launcher's exit code decides over success, even if its pod is being deleted: the
// finalizer keeps the pod until then.
func TestSuccess(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(*scene)
		want   bool
	}{
		"exits with 0":                      {onLauncher(exits(0, "Completed", "", 50)), true},
		"exits with 0, the phase follows":   {onLauncher(exitsFirst(0, "Completed", "", 50)), true},
		"exits with 0 and is deleted later": {onLauncher(exits(0, "Completed", "", 50), deleted(51)), true},
		"deleted, and then exits with 0":    {onLauncher(deleted(50), exits(0, "Completed", "", 51)), true},
		"runs":                              {func(*scene) {}, false},
		"deleted, and still runs":           {onLauncher(deleted(50)), false},
		"exits with 0, but its pod fails":   {onLauncher(exits(0, "Completed", "", 50), func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }), false},
		"its pod is deleted":                {func(scene *scene) { scene.observed.Launchers = nil }, false},
		"its pod is of an earlier start":    {onLauncher(exits(0, "Completed", "", 50), ofRestart("1")), false},
		"the workload is suspended, it was stopped": {func(scene *scene) {
			scene.launcher(deleted(50), exits(0, "Completed", "", 51))
			scene.observed.Workload.Suspended = true
		}, false},
	} {
		for _, kind := range kinds {
			scene := runningScene(t, kind, backoffLimit(1))
			tc.happen(scene)
			if verdict := scene.storeVerdict(); (verdict.Phase == training.PhaseSucceeded) != tc.want {
				t.Errorf("%s, %s: it is %s: %s", name, kind, verdict.Phase, verdict.FailureMessage)
			}
		}
	}
}

// After an outage of the container runtime the exit code is made up, and the agent's
// report decides.
func TestUnknownExit(t *testing.T) {
	const well = `{"exitCode":0,"timings":{},"hosts":{"expected":2,"reached":2}}`
	for name, tc := range map[string]struct {
		limit           int32
		reason, message string
		phase           training.Phase
		failure         training.FailureReason
		words           string
	}{
		"the agent reports success":                    {0, "Unknown", well, training.PhaseSucceeded, "", ""},
		"the node has lost the container":              {0, "ContainerStatusUnknown", well, training.PhaseSucceeded, "", ""},
		"the agent reports a failure":                  {0, "Unknown", `{"reason":"TrainingError","message":"loss is nan","exitCode":1,"hosts":{"expected":2,"reached":2}}`, training.PhaseFailed, training.FailureTraining, "loss is nan"},
		"the agent had not spoken":                     {0, "Unknown", "", training.PhaseFailed, training.FailureLauncher, "container runtime of its node was not running"},
		"the program left something that is no report": {0, "Unknown", "{}", training.PhaseFailed, training.FailureLauncher, "container runtime of its node was not running"},
		"it succeeded, and restarts are left":          {1, "Unknown", well, training.PhaseSucceeded, "", ""},
		"it is restarted":                              {1, "Unknown", "", training.PhasePending, "", ""},
		"a known exit code":                            {0, "Error", well, training.PhaseFailed, training.FailureTraining, "exited with code 255"},
	} {
		for _, kind := range kinds {
			scene := runningScene(t, kind, backoffLimit(tc.limit))
			scene.launcher(exits(255, tc.reason, tc.message, 50))
			verdict := scene.storeVerdict()
			if verdict.Phase != tc.phase || verdict.FailureReason != tc.failure || !strings.Contains(verdict.FailureMessage, tc.words) {
				t.Errorf("%s, %s: it is %s, %q: %s", name, kind, verdict.Phase, verdict.FailureReason, verdict.FailureMessage)
			}
		}
	}
}

// A missing pod is confirmed past the cache before the job fails.
func TestMissingPodsAreConfirmed(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   job.Kind
		happen func(*scene)
	}{
		"a worker":             {job.KindMPIJob, func(scene *scene) { scene.observed.Workers = scene.observed.Workers[1:] }},
		"a deleted worker":     {job.KindMPIJob, onWorker(deleted(50))},
		"the launcher's Job":   {job.KindMPIJob, func(scene *scene) { scene.observed.Launchers, scene.observed.Workload = nil, Workload{} }},
		"the JobSet":           {job.KindTrainJob, withoutPods(Workload{})},
		"a launcher that went": {job.KindTrainJob, onLauncher(deleted(50), exits(143, "Error", "", 51))},
		"the launcher":         {job.KindTrainJob, func(scene *scene) { scene.observed.Launchers = nil }},
		"an MPIJob's launcher": {job.KindMPIJob, func(scene *scene) { scene.observed.Launchers = nil }},
		"a TrainJob's worker":  {job.KindTrainJob, func(scene *scene) { scene.observed.Workers = scene.observed.Workers[1:] }},
	} {
		scene := runningScene(t, tc.kind)
		tc.happen(scene)
		if verdict := Of(scene.job, scene.previous(), scene.observed); verdict.Lookup != LookupConfirmation || isFinished(verdict) {
			t.Errorf("%s: needs %q and is %s", name, verdict.Lookup, verdict.Phase)
		}
		back := runningScene(t, tc.kind)
		back.observed.Confirmed = true
		if verdict := back.verdict(); verdict.Phase != training.PhaseRunning {
			t.Errorf("%s exists after all, and the job is %s", name, verdict.Phase)
		}
	}
}

// Pods that were not created yet are not missing.
func TestPodsNotCreatedYet(t *testing.T) {
	for _, kind := range kinds {
		scene := newScene(t, kind, 3)
		for _, happen := range []func(){
			func() {},
			func() {
				scene.addPods(nothing)
				scene.observed.Workers, scene.observed.Launchers = scene.observed.Workers[:1], nil
			},
			func() { scene.addPods(nothing) },
		} {
			happen()
			if verdict := scene.storeVerdict(); isFinished(verdict) || len(scene.lookups) > 0 {
				t.Errorf("%s: needs %v and is %s: %s", kind, scene.lookups, verdict.Phase, verdict.FailureMessage)
			}
		}
	}
}

func TestWorkersRunning(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(*scene)
		want   bool
	}{
		"all run":                     {func(*scene) {}, true},
		"all run, the launcher waits": {onLauncher(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }), true},
		"one has succeeded":           {onWorker(exits(0, "", "", 50)), true},
		"one waits":                   {onWorker(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }), false},
		"one has failed":              {onWorker(outOfMemory(50)), false},
		"one is missing":              {func(scene *scene) { scene.observed.Workers = scene.observed.Workers[1:] }, false},
		"the launcher is missing":     {func(scene *scene) { scene.observed.Launchers = nil }, false},
	} {
		for _, kind := range kinds {
			scene := runningScene(t, kind)
			tc.happen(scene)
			launcher, running := WorkersRunning(scene.job, scene.previous(), scene.observed)
			if running != tc.want || running && launcher != scene.launcher() {
				t.Errorf("%s, %s: %v with launcher %v", name, kind, running, launcher)
			}
		}
	}
}

// A launcher that has finished is kept for its log.
func TestLauncherEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(*scene)
		want   bool
	}{
		"all run":                       {func(*scene) {}, false},
		"the launcher succeeded":        {onLauncher(exits(0, "", "", 50)), true},
		"the launcher failed":           {onLauncher(exits(1, "Error", "", 50)), true},
		"the launcher is about to fail": {onLauncher(exitsFirst(1, "Error", "", 50)), true},
		"its sidecar still runs": {onLauncher(func(pod *corev1.Pod) {
			exitsFirst(1, "Error", "", 50)(pod)
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar"})
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "sidecar", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		}), false},
		"a worker failed":                    {onWorker(outOfMemory(50)), false},
		"no pods":                            {func(scene *scene) { scene.observed = Observed{} }, false},
		"a launcher of another start failed": {onLauncher(exits(1, "Error", "", 50), ofRestart("1")), false},
	} {
		for _, kind := range kinds {
			scene := runningScene(t, kind)
			tc.happen(scene)
			if got := LauncherEnded(scene.job, scene.previous(), scene.observed); got != tc.want {
				t.Errorf("%s, %s: the launcher has finished: %v", name, kind, got)
			}
		}
	}
}
