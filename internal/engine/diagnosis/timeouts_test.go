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

// When a job is checked again without an event.
func TestNextCheck(t *testing.T) {
	ofGang := created + 300
	for name, tc := range map[string]struct {
		start   podOption
		options []option
		happen  func(*scene)
		want    float64
	}{
		"a running job":                        {runs, nil, func(*scene) {}, 0},
		"a running job with a deadline":        {runs, []option{deadline(1000)}, func(*scene) {}, scheduled + 1000 - present},
		"unscheduled pods":                     {nothing, nil, func(*scene) {}, float64(ofGang - present)},
		"the last of them was created later":   {nothing, nil, onWorker(createdAt(11)), float64(ofGang - present)},
		"unscheduled pods, one is missing":     {nothing, nil, func(scene *scene) { scene.observed.Workers = scene.observed.Workers[:1]; scene.forgetPods() }, float64(ofGang - present)},
		"scheduled pods, one is missing":       {pullsImage, nil, func(scene *scene) { scene.observed.Workers = scene.observed.Workers[:1]; scene.forgetPods() }, float64(ofGang - present)},
		"unscheduled pods without a timeout":   {nothing, []option{gangTimeout(0)}, func(*scene) {}, 0},
		"a deadline before pods are scheduled": {nothing, []option{deadline(10)}, func(*scene) {}, float64(ofGang - present)},
		"an image pull error":                  {pullsImage, nil, onWorker(waits("ErrImagePull", "")), impatient - present},
		"two image pull errors": {pullsImage, nil, func(scene *scene) {
			scene.worker(0, onNode(20), waits("ErrImagePull", ""))
			scene.worker(1, onNode(10), waits("ImagePullBackOff", ""))
		}, 10 + 300 - present},
		"an image pull error before a deadline":       {pullsImage, []option{deadline(100)}, onWorker(waits("ErrImagePull", "")), scheduled + 100 - present},
		"an image pull error after an init container": {pullsImage, nil, onWorker(afterInit(50), waits("ErrImagePull", "")), 50 + 300 - present},
		"an image pull error after a restart":         {runs, nil, onWorker(restarted(1, "", 1, 55), waits("ErrImagePull", "")), 55 + 300 - present},
		"a crashing pod":                              {runs, []option{backoffLimit(3)}, onWorker(crashes(1, 1, 50)), 0},
		"a succeeded job":                             {runs, []option{deadline(1000)}, onLauncher(exits(0, "", "", 50)), 0},
		"a succeeded job with a TTL":                  {runs, []option{ttl(100)}, onLauncher(exits(0, "", "", 50)), 100},
		"a failed job with a TTL":                     {runs, []option{ttl(100)}, onWorker(exits(1, "", "", 40)), 100},
		"a gang timeout with an image pull error":     {unschedulable(noGPUs), []option{ttl(1000)}, later(400, onWorker(onNode(390), waits("ErrImagePull", ""))), 1000},
		"a job with a TTL of 0":                       {runs, []option{ttl(0)}, onLauncher(exits(0, "", "", 50)), 0.001},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := startedScene(t, kind, tc.start, tc.options...)
				tc.happen(scene)
				want := time.Duration(tc.want * float64(time.Second))
				for _, when := range []string{"first", "again"} {
					if verdict := scene.storeVerdict(); verdict.NextCheck != want {
						t.Errorf("%s: %s is checked in %s, want %s", when, verdict.Phase, verdict.NextCheck, want)
					}
				}
			})
		}
	}
}

func gangTimeout(seconds int32) option {
	return func(scene *scene) { scene.job.Gang.TimeoutSeconds = seconds }
}

// afterInit is a pod whose init container finished at this second.
func afterInit(second float64) podOption {
	return func(pod *corev1.Pod) { initContainer(pod, "unpack").State = terminated(0, "Completed", "", second) }
}

// A container that cannot start fails the job exactly at the timeout.
func TestImageTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		happen podOption
		since  float64
	}{
		"since it was scheduled":            {waits("ErrImagePull", ""), scheduled},
		"since its init container finished": {together(afterInit(50), waits("ImagePullBackOff", "")), 50},
		"of a missing Secret":               {waits("CreateContainerConfigError", ""), scheduled},
	} {
		for _, kind := range kinds {
			for _, role := range []string{training.RoleLauncher, training.RoleWorker} {
				scene := startedScene(t, kind, pullsImage)
				pod := scene.worker(1)
				if role == training.RoleLauncher {
					pod = scene.launcher()
				}
				tc.happen(pod)
				scene.setTime(tc.since + 299)
				if verdict := scene.storeVerdict(); isFinished(verdict) || verdict.NextCheck != time.Second {
					t.Errorf("%s, %s of %s: a second before it is %s, checked in %s", name, role, kind, verdict.Phase, verdict.NextCheck)
				}
				scene.setTime(tc.since + 300)
				if verdict := scene.storeVerdict(); verdict.Phase != training.PhaseFailed {
					t.Errorf("%s, %s of %s: then it is %s", name, role, kind, verdict.Phase)
				}
			}
		}
	}
}

// The operator fails a job that is not scheduled in time: no scheduler does.
func TestGangTimeout(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := startedScene(t, kind, unschedulable(noGPUs))
			scene.setTime(created + 299)
			if verdict := scene.storeVerdict(); isFinished(verdict) || len(scene.lookups) > 0 || verdict.NextCheck != time.Second {
				t.Errorf("a second before it is %s, needs %v and is checked in %s", verdict.Phase, scene.lookups, verdict.NextCheck)
			}
			// The last pod may have been scheduled just now.
			scene.setTime(created + 300)
			if verdict := Of(scene.job, scene.previous(), scene.observed); verdict.Lookup != LookupConfirmation || isFinished(verdict) {
				t.Errorf("it needs %q and is %s", verdict.Lookup, verdict.Phase)
			}
			confirmed := scene.observed
			confirmed.Confirmed = true
			if verdict := Of(scene.job, scene.previous(), confirmed); verdict.Lookup != LookupNodes || isFinished(verdict) {
				t.Errorf("then it needs %q and is %s", verdict.Lookup, verdict.Phase)
			}
			// The autoscaler adds nodes: the timeout is one hour from the creation of the pods.
			scene.scalesUp = true
			if verdict := scene.storeVerdict(); isFinished(verdict) || verdict.NextCheck != 3300*time.Second {
				t.Errorf("with a scale-up it is %s, checked in %s", verdict.Phase, verdict.NextCheck)
			}
			scene.setTime(created + 3599)
			if verdict := scene.storeVerdict(); isFinished(verdict) || verdict.NextCheck != time.Second {
				t.Errorf("a second before the hour it is %s, checked in %s", verdict.Phase, verdict.NextCheck)
			}
			scene.setTime(created + 3600)
			if verdict := scene.storeVerdict(); verdict.FailureReason != training.FailureGangSchedulingTimeout || verdict.Stage != plan.Finished {
				t.Errorf("then it is %s: %s", verdict.Phase, verdict.FailureMessage)
			}
		})
	}
}

// A scale-up does not shorten a timeout of more than an hour.
func TestScaleUpShortensNothing(t *testing.T) {
	scene := startedScene(t, job.KindTrainJob, unschedulable(noGPUs), gangTimeout(7200))
	scene.setTime(created + 7199)
	scene.observed.ScaleUp = true
	if verdict := scene.storeVerdict(); isFinished(verdict) {
		t.Errorf("%s: %s", verdict.Phase, verdict.FailureMessage)
	}
	scene.setTime(created + 7200)
	if verdict := scene.storeVerdict(); verdict.FailureReason != training.FailureGangSchedulingTimeout {
		t.Errorf("%s: %s", verdict.Phase, verdict.FailureMessage)
	}
}

// A job without a limit waits forever.
func TestNoGangTimeout(t *testing.T) {
	for _, kind := range kinds {
		scene := startedScene(t, kind, unschedulable(noGPUs), gangTimeout(0))
		scene.setTime(1e6)
		if verdict := scene.storeVerdict(); isFinished(verdict) || verdict.NextCheck != 0 || len(scene.lookups) > 0 {
			t.Errorf("%s: it is %s, needs %v and is checked in %s", kind, verdict.Phase, scene.lookups, verdict.NextCheck)
		}
	}
}

// The gang's timeout does not apply to scheduled workers whose launcher is created only
// when they are ready.
func TestGangTimeoutIgnoresLaterLauncher(t *testing.T) {
	for workers, happen := range map[int32]func(*scene){
		2: func(scene *scene) {
			scene.addPods(pullsImage)
			scene.observed.Launchers, scene.observed.Workload = nil, Workload{}
		},
		0: func(*scene) {},
	} {
		scene := newScene(t, job.KindMPIJob, workers, func(scene *scene) { scene.job.LauncherWaits = true })
		happen(scene)
		scene.setTime(1000)
		if verdict := scene.storeVerdict(); isFinished(verdict) || len(scene.lookups) > 0 {
			t.Errorf("%d workers: it needs %v and is %s: %s", workers, scene.lookups, verdict.Phase, verdict.FailureMessage)
		}
	}
	scene := newScene(t, job.KindMPIJob, 2, func(scene *scene) { scene.job.LauncherWaits = true })
	scene.addPods(unschedulable(noGPUs))
	scene.observed.Launchers, scene.observed.Workload = nil, Workload{}
	scene.setTime(1000)
	if verdict := scene.storeVerdict(); verdict.FailureReason != training.FailureGangSchedulingTimeout {
		t.Errorf("unscheduled workers are %s", verdict.Phase)
	}
}

// No timeout applies to a job that is suspended or waits in a queue.
func TestNoTimeoutsWhileSuspended(t *testing.T) {
	for _, kind := range kinds {
		scene := startedScene(t, kind, unschedulable(noGPUs), deadline(10))
		scene.job.Suspended = true
		scene.setTime(5000)
		if verdict := scene.storeVerdict(); isFinished(verdict) || verdict.NextCheck != 0 || len(scene.lookups) > 0 {
			t.Errorf("%s: it is %s, needs %v and is checked in %s", kind, verdict.Phase, scene.lookups, verdict.NextCheck)
		}
	}
	scene := runningScene(t, job.KindTrainJob, deadline(100))
	scene.observed.Workload.Suspended = true
	scene.setTime(5000)
	if verdict := scene.storeVerdict(); isFinished(verdict) || verdict.NextCheck != 0 {
		t.Errorf("held by a queue it is %s and is checked in %s", verdict.Phase, verdict.NextCheck)
	}
}

func TestExpired(t *testing.T) {
	for _, kind := range kinds {
		scene := runningScene(t, kind, ttl(100))
		if Expired(scene.job, scene.previous(), at(100000)) {
			t.Errorf("%s: a running job is expired", kind)
		}
		// The node's clock is behind: the TTL does not depend on it.
		scene.launcher(exits(0, "", "", 50))
		scene.storeVerdict()
		for second, want := range map[float64]bool{150: false, present + 99: false, present + 100: true, 5000: true} {
			if got := Expired(scene.job, scene.previous(), at(second)); got != want {
				t.Errorf("%s: at %v it is expired: %v", kind, second, got)
			}
		}
		scene.job.Lifetime.TTLSecondsAfterFinished = nil
		if Expired(scene.job, scene.previous(), at(100000)) {
			t.Errorf("%s: a job without a TTL is expired", kind)
		}
	}
}
