// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// steps are a timeline in the seconds of these tests.
func (sc *scene) steps() map[training.TimelineStep]float64 {
	sc.t.Helper()
	steps := map[training.TimelineStep]float64{}
	last := -1
	for _, entry := range sc.previous().Timeline {
		position := indexOf(entry.Step)
		if position <= last {
			sc.t.Errorf("%s stands after a later step: %v", entry.Step, sc.previous().Timeline)
		}
		last = position
		steps[entry.Step] = entry.Time.Sub(at(0)).Seconds()
	}
	return steps
}

func indexOf(step training.TimelineStep) int {
	for i, known := range []training.TimelineStep{"Submitted", "Admitted", "Scheduled", "PodsReady", "WorkersReached", "FirstRankUp", "Finished"} {
		if known == step {
			return i
		}
	}
	return -1
}

func (sc *scene) wantSteps(when string, want map[training.TimelineStep]float64) {
	sc.t.Helper()
	if diff := cmp.Diff(want, sc.steps()); diff != "" {
		sc.t.Errorf("%s, the timeline (-want +got):\n%s", when, diff)
	}
}

func TestTimeline(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := newScene(t, kind, 2)
			want := map[training.TimelineStep]float64{training.StepSubmitted: submitted, training.StepAdmitted: 0}
			scene.setTime(0.7)
			scene.storeVerdict()
			scene.wantSteps("submitted", want)

			scene.setTime(3)
			scene.addPods(nothing)
			scene.storeVerdict()
			scene.wantSteps("with pods", want)

			scene.everyPod(onNode(scheduled))
			scene.worker(1, onNode(scheduled+1))
			scene.storeVerdict()
			want[training.StepScheduled] = scheduled + 1
			scene.wantSteps("scheduled", want)
			if start := scene.previous().StartTime; start == nil || !start.Time.Equal(at(scheduled+1)) {
				t.Errorf("it has started at %v", start)
			}

			scene.setTime(8)
			scene.everyPod(runs)
			scene.worker(0, withCondition("Ready", "True", ready+1, "", ""))
			scene.launcher(starts)
			scene.storeVerdict()
			want[training.StepPodsReady] = ready + 1
			scene.wantSteps("with workers", want)

			scene.launcher(withCondition("Ready", "True", ready+2, "", ""))
			scene.storeVerdict()
			want[training.StepWorkersReached] = ready + 2
			scene.wantSteps("with a launcher that has reached them", want)

			// A reached step keeps its time.
			scene.setTime(40)
			scene.everyPod(onNode(30), withCondition("Ready", "True", 35, "", ""))
			scene.storeVerdict()
			scene.everyPod(withCondition("Ready", "False", 36, "", ""))
			scene.storeVerdict()
			scene.wantSteps("with pods that are not ready any more", want)

			scene.setTime(present)
			report := protocol.Report{Hosts: protocol.Hosts{Expected: 2, Reached: 2}, Timings: protocol.Timings{DNS: 1, Connect: 2, Init: 4, Total: 44}}
			scene.launcher(exits(0, "Completed", reportText(t, report), 50))
			verdict := scene.storeVerdict()
			want[training.StepFirstRankUp] = scheduled + 1 + 1 + 2 + 4
			want[training.StepFinished] = 50
			scene.wantSteps("done", want)
			if verdict.Duration != "47s" || verdict.Report == nil || verdict.Report.Timings != report.Timings {
				t.Errorf("it took %s, with the report %+v", verdict.Duration, verdict.Report)
			}
		})
	}
}

// A job may finish before the operator observes its launcher as ready; then the report
// has the time.
func TestTimelineOfShortJob(t *testing.T) {
	for name, tc := range map[string]struct {
		code   int32
		report string
		want   map[training.TimelineStep]float64
		ready  bool
	}{
		"with a report": {
			0, `{"timings":{"dns":0.5,"connect":0.5,"init":2},"hosts":{"expected":2,"reached":2}}`,
			map[training.TimelineStep]float64{training.StepPodsReady: 4, training.StepWorkersReached: 4, training.StepFirstRankUp: 6}, true,
		},
		"with a report of a check of ports": {
			0, `{"timings":{"dns":0.5,"connect":0.5,"ports":1,"init":2},"hosts":{"expected":2,"reached":2}}`,
			map[training.TimelineStep]float64{training.StepPodsReady: 5, training.StepWorkersReached: 5, training.StepFirstRankUp: 7}, true,
		},
		"with a report that is longer than the run": {
			0, `{"timings":{"dns":0.5,"connect":0.5,"init":2000},"hosts":{"expected":2,"reached":2}}`,
			map[training.TimelineStep]float64{training.StepPodsReady: 4, training.StepWorkersReached: 4, training.StepFirstRankUp: 9}, true,
		},
		"with a report of nonsense": {
			0, `{"timings":{"dns":-7,"connect":-1e300,"init":1e300},"hosts":{"expected":2,"reached":2}}`,
			map[training.TimelineStep]float64{training.StepPodsReady: 3, training.StepWorkersReached: 3, training.StepFirstRankUp: 9}, true,
		},
		"with a report of a run that started nothing": {0, `{"hosts":{"expected":2,"reached":2}}`, nil, true},
		"without a report":                            {0, "", nil, true},
		"with a report of a gate that was not passed": {
			70, `{"reason":"SSHConnectionFailed","message":"no answer","timings":{"connect":1,"init":1},"hosts":{"expected":2,"reached":0}}`, nil, false,
		},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := startedScene(t, kind, starts)
				scene.launcher(exits(tc.code, "", tc.report, 9))
				scene.storeVerdict()
				want := map[training.TimelineStep]float64{training.StepSubmitted: 0, training.StepAdmitted: created, training.StepScheduled: scheduled, training.StepFinished: 9}
				maps.Copy(want, tc.want)
				scene.wantSteps("done", want)
				if condition := scene.condition("LauncherReady"); kind == job.KindTrainJob && strings.HasPrefix(condition, "True") != tc.ready {
					t.Errorf("the launcher's condition is %s", condition)
				}
			})
		}
	}
}

// Kubelets report readiness late and at different times; the steps are in order anyway.
func TestStepsAreInOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(*scene)
		want   map[training.TimelineStep]float64
	}{
		"a worker is noticed after the launcher that has reached it": {
			func(scene *scene) {
				scene.addPods(runs)
				scene.worker(1, withCondition("Ready", "True", ready+3, "", ""))
			},
			map[training.TimelineStep]float64{training.StepPodsReady: ready + 3, training.StepWorkersReached: ready + 3},
		},
		"the launcher is seen first": {
			func(scene *scene) {
				scene.addPods(runs)
				scene.worker(1, withCondition("Ready", "False", scheduled, "", ""))
				scene.storeVerdict()
				scene.worker(1, withCondition("Ready", "True", ready+3, "", ""))
			},
			map[training.TimelineStep]float64{training.StepPodsReady: ready, training.StepWorkersReached: ready},
		},
		"the report tells of a time before": {
			func(scene *scene) {
				scene.addPods(runs)
				scene.launcher(exits(0, "", `{"timings":{"init":0.5},"hosts":{"expected":2,"reached":2}}`, 20))
			},
			map[training.TimelineStep]float64{training.StepPodsReady: ready, training.StepWorkersReached: ready, training.StepFirstRankUp: ready, training.StepFinished: 20},
		},
	} {
		for _, kind := range kinds {
			scene := newScene(t, kind, 2)
			tc.happen(scene)
			scene.storeVerdict()
			want := map[training.TimelineStep]float64{training.StepSubmitted: submitted, training.StepAdmitted: created, training.StepScheduled: scheduled}
			maps.Copy(want, tc.want)
			scene.wantSteps(name+", "+string(kind), want)
		}
	}
}

// The duration is the time from the last pod scheduled to completion.
func TestDuration(t *testing.T) {
	for name, tc := range map[string]struct {
		start  podOption
		happen func(*scene)
		want   string
	}{
		"a run":                             {runs, onLauncher(exits(0, "", "", 50.4)), "48s"},
		"a long run":                        {runs, later(4000, onLauncher(exits(0, "", "", scheduled+3*60+30))), "3m30s"},
		"a job that was never scheduled":    {unschedulable(noGPUs), later(400, func(*scene) {}), ""},
		"a pod that failed before the last": {runs, onWorker(exits(1, "", "", created)), "0s"},
	} {
		for _, kind := range kinds {
			scene := startedScene(t, kind, tc.start)
			tc.happen(scene)
			if verdict := scene.verdict(); verdict.Duration != tc.want {
				t.Errorf("%s, %s: %q, want %q", name, kind, verdict.Duration, tc.want)
			}
		}
	}
}

// A suspension removes all steps but Submitted.
func TestSuspensionResetsTimeline(t *testing.T) {
	for _, kind := range kinds {
		scene := runningScene(t, kind, deadline(1000))
		scene.job.Suspended = true
		verdict := scene.storeVerdict()
		scene.wantSteps("suspended", map[training.TimelineStep]float64{training.StepSubmitted: submitted})
		if verdict.StartTime != nil || verdict.NextCheck != 0 {
			t.Errorf("%s: it has started at %v and is checked in %s", kind, verdict.StartTime, verdict.NextCheck)
		}
		withoutPods(Workload{})(scene)
		scene.storeVerdict()
		scene.job.Suspended = false
		scene.setTime(100)
		scene.storeVerdict()
		scene.wantSteps("resumed", map[training.TimelineStep]float64{training.StepSubmitted: submitted, training.StepAdmitted: 100})
		scene.addPods(runs)
		scene.everyPod(onNode(102), withCondition("Ready", "True", 105, "", ""))
		scene.setTime(110)
		verdict = scene.storeVerdict()
		if want := 1000*time.Second - 8*time.Second; !verdict.StartTime.Time.Equal(at(102)) || verdict.NextCheck != want {
			t.Errorf("%s: it has restarted at %v, and is checked in %s, want %s", kind, verdict.StartTime, verdict.NextCheck, want)
		}
	}
}

// A job that is created suspended has the step Submitted.
func TestTimelineOfSuspendedJob(t *testing.T) {
	scene := newScene(t, job.KindTrainJob, 2)
	scene.job.Suspended = true
	scene.storeVerdict()
	scene.wantSteps("suspended", map[training.TimelineStep]float64{training.StepSubmitted: submitted})
}
