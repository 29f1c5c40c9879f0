package diagnosis

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Success is what the launcher's command says, also of a pod that is being deleted:
// its finalizer keeps it until that is known.
func TestSuccess(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(*scene)
		want   bool
	}{
		"exits with 0":                      {launcherEnds(exits(0, "Completed", "", 50)), true},
		"exits with 0, the phase follows":   {launcherEnds(exitsFirst(0, "Completed", "", 50)), true},
		"exits with 0 and is deleted later": {launcherEnds(exits(0, "Completed", "", 50), deleted(51)), true},
		"deleted, and then exits with 0":    {launcherEnds(deleted(50), exits(0, "Completed", "", 51)), true},
		"runs":                              {func(*scene) {}, false},
		"deleted, and still runs":           {launcherEnds(deleted(50)), false},
		"exits with 0, but its pod fails":   {launcherEnds(exits(0, "Completed", "", 50), func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }), false},
		"its pod is gone":                   {func(scene *scene) { scene.observed.Launchers = nil }, false},
		"its pod is of an earlier start":    {launcherEnds(exits(0, "Completed", "", 50), ofRestart("1")), false},
		"the workload is suspended, it was stopped": {func(scene *scene) {
			scene.launcher(deleted(50), exits(0, "Completed", "", 51))
			scene.observed.Workload.Suspended = true
		}, false},
	} {
		for _, kind := range kinds {
			scene := runningScene(t, kind, backoffLimit(1))
			tc.happen(scene)
			if verdict := scene.settle(); (verdict.Phase == training.PhaseSucceeded) != tc.want {
				t.Errorf("%s, %s: it is %s: %s", name, kind, verdict.Phase, verdict.FailureMessage)
			}
		}
	}
}

// A container runtime that was away invents an exit code. What the agent wrote is the
// truth.
func TestUnknownExit(t *testing.T) {
	const well = `{"exitCode":0,"timings":{},"hosts":{"expected":2,"reached":2}}`
	for name, tc := range map[string]struct {
		limit           int32
		reason, message string
		phase           training.Phase
		failure         training.FailureReason
		words           string
	}{
		"the agent says that it ended well":             {0, "Unknown", well, training.PhaseSucceeded, "", ""},
		"the node has lost the container":               {0, "ContainerStatusUnknown", well, training.PhaseSucceeded, "", ""},
		"the agent says how it failed":                  {0, "Unknown", `{"reason":"TrainingError","message":"loss is nan","exitCode":1,"hosts":{"expected":2,"reached":2}}`, training.PhaseFailed, training.FailureTraining, "loss is nan"},
		"the agent had not spoken":                      {0, "Unknown", "", training.PhaseFailed, training.FailureLauncher, "container runtime of its node was not running"},
		"the program left something that is no report":  {0, "Unknown", "{}", training.PhaseFailed, training.FailureLauncher, "container runtime of its node was not running"},
		"it succeeded, and restarts are left":           {1, "Unknown", well, training.PhaseSucceeded, "", ""},
		"it is restarted":                               {1, "Unknown", "", training.PhasePending, "", ""},
		"an exit code that is known, beside such words": {0, "Error", well, training.PhaseFailed, training.FailureTraining, "exited with code 255"},
	} {
		for _, kind := range kinds {
			scene := runningScene(t, kind, backoffLimit(tc.limit))
			scene.launcher(exits(255, tc.reason, tc.message, 50))
			verdict := scene.settle()
			if verdict.Phase != tc.phase || verdict.FailureReason != tc.failure || !strings.Contains(verdict.FailureMessage, tc.words) {
				t.Errorf("%s, %s: it is %s, %q: %s", name, kind, verdict.Phase, verdict.FailureReason, verdict.FailureMessage)
			}
		}
	}
}

// What is missing is looked for again before a job fails for it.
func TestMissingPodsAreConfirmed(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   job.Kind
		happen func(*scene)
	}{
		"a worker":             {job.KindMPIJob, func(scene *scene) { scene.observed.Workers = scene.observed.Workers[1:] }},
		"a worker that goes":   {job.KindMPIJob, happensTo(deleted(50))},
		"the launcher's Job":   {job.KindMPIJob, func(scene *scene) { scene.observed.Launchers, scene.observed.Workload = nil, Workload{} }},
		"the JobSet":           {job.KindTrainJob, gone(Workload{})},
		"a launcher that went": {job.KindTrainJob, launcherEnds(deleted(50), exits(143, "Error", "", 51))},
		"the launcher":         {job.KindTrainJob, func(scene *scene) { scene.observed.Launchers = nil }},
		"an MPIJob's launcher": {job.KindMPIJob, func(scene *scene) { scene.observed.Launchers = nil }},
		"a TrainJob's worker":  {job.KindTrainJob, func(scene *scene) { scene.observed.Workers = scene.observed.Workers[1:] }},
	} {
		scene := runningScene(t, tc.kind)
		tc.happen(scene)
		if verdict := Of(scene.job, scene.previous(), scene.observed); verdict.Ask != AskConfirmation || hasEnded(verdict) {
			t.Errorf("%s: asks for %q and is %s", name, verdict.Ask, verdict.Phase)
		}
		back := runningScene(t, tc.kind)
		back.observed.Confirmed = true
		if verdict := back.look(); verdict.Phase != training.PhaseRunning {
			t.Errorf("%s is there after all, and it is %s", name, verdict.Phase)
		}
	}
}

// Pods that are not there yet are not missed.
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
			if verdict := scene.settle(); hasEnded(verdict) || len(scene.asked) > 0 {
				t.Errorf("%s: asks for %v and is %s: %s", kind, scene.asked, verdict.Phase, verdict.FailureMessage)
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
		"all run, the launcher waits": {launcherEnds(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }), true},
		"one has ended well":          {happensTo(exits(0, "", "", 50)), true},
		"one waits":                   {happensTo(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }), false},
		"one has failed":              {happensTo(outOfMemory(50)), false},
		"one is not there":            {func(scene *scene) { scene.observed.Workers = scene.observed.Workers[1:] }, false},
		"the launcher is not there":   {func(scene *scene) { scene.observed.Launchers = nil }, false},
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
		"the launcher succeeded":        {launcherEnds(exits(0, "", "", 50)), true},
		"the launcher failed":           {launcherEnds(exits(1, "Error", "", 50)), true},
		"the launcher is about to fail": {launcherEnds(exitsFirst(1, "Error", "", 50)), true},
		"its sidecar still runs": {launcherEnds(func(pod *corev1.Pod) {
			exitsFirst(1, "Error", "", 50)(pod)
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar"})
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "sidecar", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		}), false},
		"a worker failed":                    {happensTo(outOfMemory(50)), false},
		"there is nothing":                   {func(scene *scene) { scene.observed = Observed{} }, false},
		"a launcher of another start failed": {launcherEnds(exits(1, "Error", "", 50), ofRestart("1")), false},
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
