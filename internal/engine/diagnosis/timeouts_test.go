package diagnosis

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// When a job is looked at again although nothing has happened to it.
func TestNextCheck(t *testing.T) {
	ofGang := created + 300
	for name, tc := range map[string]struct {
		start   podOption
		options []option
		happen  func(*scene)
		want    float64
	}{
		"a job that runs":                         {runs, nil, func(*scene) {}, 0},
		"a job that runs, with a deadline":        {runs, []option{deadline(1000)}, func(*scene) {}, placed + 1000 - present},
		"pods that wait for a place":              {nothing, nil, func(*scene) {}, float64(ofGang - present)},
		"the last of them came later":             {nothing, nil, happensTo(createdAt(11)), float64(ofGang - present)},
		"pods that wait, of which one is missing": {nothing, nil, func(scene *scene) { scene.observed.Workers = scene.observed.Workers[:1]; scene.forgetPods() }, float64(ofGang - present)},
		"scheduled pods, of which one is missing": {places, nil, func(scene *scene) { scene.observed.Workers = scene.observed.Workers[:1]; scene.forgetPods() }, float64(ofGang - present)},
		"pods that wait as long as they must":     {nothing, []option{gangTimeout(0)}, func(*scene) {}, 0},
		"a deadline before there are places":      {nothing, []option{deadline(10)}, func(*scene) {}, float64(ofGang - present)},
		"an image that does not come":             {places, nil, happensTo(waits("ErrImagePull", "")), impatient - present},
		"two images that do not come": {places, nil, func(scene *scene) {
			scene.worker(0, onNode(20), waits("ErrImagePull", ""))
			scene.worker(1, onNode(10), waits("ImagePullBackOff", ""))
		}, 10 + 300 - present},
		"an image that does not come before a deadline":        {places, []option{deadline(100)}, happensTo(waits("ErrImagePull", "")), placed + 100 - present},
		"an image that does not come, after an init container": {places, nil, happensTo(afterInit(50), waits("ErrImagePull", "")), 50 + 300 - present},
		"an image that does not come the second time":          {runs, nil, happensTo(restarted(1, "", 1, 55), waits("ErrImagePull", "")), 55 + 300 - present},
		"a job that waits in a pod's crashes":                  {runs, []option{backoffLimit(3)}, happensTo(crashes(1, 1, 50)), 0},
		"a job that has ended":                                 {runs, []option{deadline(1000)}, launcherEnds(exits(0, "", "", 50)), 0},
		"a job that has ended and goes later":                  {runs, []option{timeToLive(100)}, launcherEnds(exits(0, "", "", 50)), 100},
		"a job that has failed and goes later":                 {runs, []option{timeToLive(100)}, happensTo(exits(1, "", "", 40)), 100},
		"a gang that gave up, with a pod that has no image":    {withoutPlace(noGPUs), []option{timeToLive(1000)}, later(400, happensTo(onNode(390), waits("ErrImagePull", ""))), 1000},
		"a job that goes at once":                              {runs, []option{timeToLive(0)}, launcherEnds(exits(0, "", "", 50)), 0.001},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := startedScene(t, kind, tc.start, tc.options...)
				tc.happen(scene)
				want := time.Duration(tc.want * float64(time.Second))
				for _, when := range []string{"first", "again"} {
					if verdict := scene.settle(); verdict.NextCheck != want {
						t.Errorf("%s: %s is looked at in %s, want %s", when, verdict.Phase, verdict.NextCheck, want)
					}
				}
			})
		}
	}
}

func gangTimeout(seconds int32) option {
	return func(scene *scene) { scene.job.Gang.TimeoutSeconds = seconds }
}

// afterInit is a pod whose init container took its time.
func afterInit(second float64) podOption {
	return func(pod *corev1.Pod) { initContainer(pod, "unpack").State = terminated(0, "Completed", "", second) }
}

// Patience is over when it is over, and not before.
func TestImageTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		happen podOption
		since  float64
	}{
		"since it has a place":             {waits("ErrImagePull", ""), placed},
		"since its init container is done": {together(afterInit(50), waits("ImagePullBackOff", "")), 50},
		"of a Secret that is not there":    {waits("CreateContainerConfigError", ""), placed},
	} {
		for _, kind := range kinds {
			for _, role := range []string{training.RoleLauncher, training.RoleWorker} {
				scene := startedScene(t, kind, places)
				pod := scene.worker(1)
				if role == training.RoleLauncher {
					pod = scene.launcher()
				}
				tc.happen(pod)
				scene.after(tc.since + 299)
				if verdict := scene.settle(); hasEnded(verdict) || verdict.NextCheck != time.Second {
					t.Errorf("%s, %s of %s: a second before it is %s, looked at in %s", name, role, kind, verdict.Phase, verdict.NextCheck)
				}
				scene.after(tc.since + 300)
				if verdict := scene.settle(); verdict.Phase != training.PhaseFailed {
					t.Errorf("%s, %s of %s: then it is %s", name, role, kind, verdict.Phase)
				}
			}
		}
	}
}

// No scheduler ever fails a job that has no place: the operator's clock does.
func TestGangTimeout(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := startedScene(t, kind, withoutPlace(noGPUs))
			scene.after(created + 299)
			if verdict := scene.settle(); hasEnded(verdict) || len(scene.asked) > 0 || verdict.NextCheck != time.Second {
				t.Errorf("a second before it is %s, asks for %v and is looked at in %s", verdict.Phase, scene.asked, verdict.NextCheck)
			}
			// The last pod may have got its place a moment ago.
			scene.after(created + 300)
			if verdict := Of(scene.job, scene.previous(), scene.observed); verdict.Ask != AskConfirmation || hasEnded(verdict) {
				t.Errorf("it asks for %q and is %s", verdict.Ask, verdict.Phase)
			}
			confirmed := scene.observed
			confirmed.Confirmed = true
			if verdict := Of(scene.job, scene.previous(), confirmed); verdict.Ask != AskNodes || hasEnded(verdict) {
				t.Errorf("then it asks for %q and is %s", verdict.Ask, verdict.Phase)
			}
			// More nodes are coming: for an hour from when the pods were there.
			scene.coming = true
			if verdict := scene.settle(); hasEnded(verdict) || verdict.NextCheck != 3300*time.Second {
				t.Errorf("with nodes that are coming it is %s, looked at in %s", verdict.Phase, verdict.NextCheck)
			}
			scene.after(created + 3599)
			if verdict := scene.settle(); hasEnded(verdict) || verdict.NextCheck != time.Second {
				t.Errorf("a second before the hour is over it is %s, looked at in %s", verdict.Phase, verdict.NextCheck)
			}
			scene.after(created + 3600)
			if verdict := scene.settle(); verdict.FailureReason != training.FailureGangSchedulingTimeout || verdict.Stage != plan.Finished {
				t.Errorf("then it is %s: %s", verdict.Phase, verdict.FailureMessage)
			}
		})
	}
}

// Who may wait for longer than an hour is not cut short by nodes that come.
func TestScaleUpShortensNothing(t *testing.T) {
	scene := startedScene(t, job.KindTrainJob, withoutPlace(noGPUs), gangTimeout(7200))
	scene.after(created + 7199)
	scene.observed.ScaleUp = true
	if verdict := scene.settle(); hasEnded(verdict) {
		t.Errorf("%s: %s", verdict.Phase, verdict.FailureMessage)
	}
	scene.after(created + 7200)
	if verdict := scene.settle(); verdict.FailureReason != training.FailureGangSchedulingTimeout {
		t.Errorf("%s: %s", verdict.Phase, verdict.FailureMessage)
	}
}

// Who sets no limit waits for ever.
func TestNoGangTimeout(t *testing.T) {
	for _, kind := range kinds {
		scene := startedScene(t, kind, withoutPlace(noGPUs), gangTimeout(0))
		scene.after(1e6)
		if verdict := scene.settle(); hasEnded(verdict) || verdict.NextCheck != 0 || len(scene.asked) > 0 {
			t.Errorf("%s: it is %s, asks for %v and is looked at in %s", kind, verdict.Phase, scene.asked, verdict.NextCheck)
		}
	}
}

// Workers that are scheduleds are no gang that waits, even if the launcher
// comes only when they are ready.
func TestGangTimeoutIgnoresLaterLauncher(t *testing.T) {
	for workers, happen := range map[int32]func(*scene){
		2: func(scene *scene) {
			scene.addPods(places)
			scene.observed.Launchers, scene.observed.Workload = nil, Workload{}
		},
		0: func(*scene) {},
	} {
		scene := newScene(t, job.KindMPIJob, workers, func(scene *scene) { scene.job.LauncherWaits = true })
		happen(scene)
		scene.after(1000)
		if verdict := scene.settle(); hasEnded(verdict) || len(scene.asked) > 0 {
			t.Errorf("%d workers: it asks for %v and is %s: %s", workers, scene.asked, verdict.Phase, verdict.FailureMessage)
		}
	}
	scene := newScene(t, job.KindMPIJob, 2, func(scene *scene) { scene.job.LauncherWaits = true })
	scene.addPods(withoutPlace(noGPUs))
	scene.observed.Launchers, scene.observed.Workload = nil, Workload{}
	scene.after(1000)
	if verdict := scene.settle(); verdict.FailureReason != training.FailureGangSchedulingTimeout {
		t.Errorf("workers without a place are %s", verdict.Phase)
	}
}

// A job that is suspended, or held by a queue, has no clock that runs.
func TestNoTimeoutsWhileSuspended(t *testing.T) {
	for _, kind := range kinds {
		scene := startedScene(t, kind, withoutPlace(noGPUs), deadline(10))
		scene.job.Suspended = true
		scene.after(5000)
		if verdict := scene.settle(); hasEnded(verdict) || verdict.NextCheck != 0 || len(scene.asked) > 0 {
			t.Errorf("%s: it is %s, asks for %v and is looked at in %s", kind, verdict.Phase, scene.asked, verdict.NextCheck)
		}
	}
	scene := runningScene(t, job.KindTrainJob, deadline(100))
	scene.observed.Workload.Suspended = true
	scene.after(5000)
	if verdict := scene.settle(); hasEnded(verdict) || verdict.NextCheck != 0 {
		t.Errorf("held by a queue it is %s and is looked at in %s", verdict.Phase, verdict.NextCheck)
	}
}

func TestExpired(t *testing.T) {
	for _, kind := range kinds {
		scene := runningScene(t, kind, timeToLive(100))
		if Expired(scene.job, scene.previous(), at(100000)) {
			t.Errorf("%s: a job that runs does not go", kind)
		}
		// The node's clock is behind: it is not what the time to live is counted by.
		scene.launcher(exits(0, "", "", 50))
		scene.settle()
		for second, want := range map[float64]bool{150: false, present + 99: false, present + 100: true, 5000: true} {
			if got := Expired(scene.job, scene.previous(), at(second)); got != want {
				t.Errorf("%s: at %v it is expired: %v", kind, second, got)
			}
		}
		scene.job.Lifetime.TTLSecondsAfterFinished = nil
		if Expired(scene.job, scene.previous(), at(100000)) {
			t.Errorf("%s: a job without a time to live goes", kind)
		}
	}
}
