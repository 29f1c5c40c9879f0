// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

var overQuota = &Refusal{Role: training.RoleWorker, Object: "Pod train-worker-1", Message: exceeded + ".", Quota: true, QuotaName: "compute"}

// overQuotaScene is a job whose second worker a quota refuses for the first time.
func overQuotaScene(t *testing.T, kind job.Kind, options ...option) *scene {
	scene := newScene(t, kind, 2, options...)
	scene.storeVerdict()
	scene.addPods(nothing)
	scene.observed.Workers = scene.observed.Workers[:1]
	scene.observed.Refusal = overQuota
	return scene
}

// The first refusal is not a failure: other jobs may free the quota.
func TestFirstQuotaRefusal(t *testing.T) {
	for _, kind := range kinds {
		scene := overQuotaScene(t, kind)
		verdict := scene.wantStage(string(kind)+" is refused", plan.Active)
		message := "Pod train-worker-1 could not be created: " + exceeded
		if wait := scene.previous().QuotaWait; wait == nil || *wait != (training.QuotaWait{Name: "compute", Since: stored(t, stamp(present)), Message: message}) {
			t.Errorf("%s: it waits for %+v", kind, wait)
		}
		if want := (Condition{Reason: "WaitingForQuota", Message: "Waiting for quota: " + message}); verdict.Waiting != want || verdict.Gang != want {
			t.Errorf("%s: it waits for %+v", kind, verdict.Waiting)
		}
		if verdict.Phase != training.PhasePending || verdict.NextCheck != quotaRetryPause {
			t.Errorf("%s: %s, next check in %s", kind, verdict.Phase, verdict.NextCheck)
		}
	}
}

// Jobs that wait for a quota.
func TestQuotaWait(t *testing.T) {
	const early, late = present + 20, present + 60
	deleting := func(scene *scene) { scene.everyPod(deleted(early)) }
	none := func(scene *scene) { scene.observed.Launchers, scene.observed.Workers = nil, nil }
	all := func(scene *scene) { scene.addPods(nothing) }
	for name, tc := range map[string]struct {
		after          float64
		refused, older bool
		happen         func(*scene)
		stage          plan.Stage
		waits          bool
		reason         training.FailureReason
	}{
		"refused again":                              {after: early, refused: true, stage: plan.Active, waits: true},
		"not tried again yet":                        {after: early, stage: plan.Active, waits: true},
		"all pods exist":                             {after: early, happen: all, stage: plan.Active},
		"all pods exist, an older job waits":         {after: early, older: true, happen: all, stage: plan.Active},
		"an older job waits":                         {after: early, older: true, stage: plan.Held, waits: true},
		"an older job waits, pods are being deleted": {after: early, older: true, happen: deleting, stage: plan.Held, waits: true},
		"an older job waits, pods have failed by it": {after: early, older: true, happen: func(scene *scene) { scene.everyPod(pullsImage, deleted(early), exits(143, "Error", "", early)) }, stage: plan.Held, waits: true},
		"an older job waits, pods are deleted":       {after: early, older: true, happen: none, stage: plan.Held, waits: true},
		"no older job waits, pods are being deleted": {after: early, happen: deleting, stage: plan.Held, waits: true},
		"all pods exist, one is being deleted":       {after: early, happen: func(scene *scene) { all(scene); scene.worker(1, deleted(early)) }, stage: plan.Held, waits: true},
		"no older job waits, pods are deleted":       {after: early, happen: none, stage: plan.Active, waits: true},
		"workload is missing":                        {after: early, happen: withoutPods(Workload{}), stage: plan.Active, waits: true},
		"a second before its time is over, refused":  {after: late - 1, refused: true, stage: plan.Active, waits: true},
		"its time is over, refused":                  {after: late, refused: true, stage: plan.Finished, reason: training.FailureResourceQuota},
		"its time is over, not tried again yet":      {after: late + 100, stage: plan.Active, waits: true},
		"its time is over, all pods exist":           {after: late, happen: all, stage: plan.Active},
		"its time is over, an older job waits":       {after: late, older: true, happen: none, stage: plan.Finished, reason: training.FailureResourceQuota},
		"its time is over, pods are being deleted":   {after: late, happen: deleting, stage: plan.Held, waits: true},
		"suspended by its user":                      {after: early, happen: func(scene *scene) { scene.job.Suspended = true }, stage: plan.Suspended},
		"held by a queue":                            {after: early, older: true, happen: func(scene *scene) { scene.observed.Workload.Suspended = true }, stage: plan.Held},
		"a worker fails":                             {after: early, refused: true, happen: func(scene *scene) { scene.worker(0, runs, outOfMemory(early)) }, stage: plan.Finished, reason: training.FailureWorker},
		"another refusal than by a quota": {after: early, happen: func(scene *scene) {
			scene.observed.Refusal = &Refusal{Role: training.RoleWorker, Object: "Pod x", Message: "no"}
		}, stage: plan.Finished, reason: training.FailureWorker},
		"gang timeout": {after: created + 300, happen: func(*scene) {}, stage: plan.Finished, reason: training.FailureGangSchedulingTimeout},
		"older waits and the launcher has succeeded": {after: early, older: true, happen: func(scene *scene) { scene.launcher(runs, exits(0, "Completed", "", early)) }, stage: plan.Finished},
		// It has passed its gate, so it had all of its workers: before that the agent exits
		// with 143.
		"older waits, the launcher stops with 0": {after: early, older: true, happen: func(scene *scene) { scene.launcher(runs, deleted(early-1), exits(0, "Completed", "", early)) }, stage: plan.Finished},
		"refused by another quota of the namespace": {after: early, happen: func(scene *scene) {
			scene.observed.Refusal = &Refusal{Object: "Pod x", Message: exceeded, Quota: true, QuotaName: "pods"}
		}, stage: plan.Active, waits: true},
		"its time is over, refused by another quota": {after: late, happen: func(scene *scene) {
			scene.observed.Refusal = &Refusal{Object: "Pod x", Message: exceeded, Quota: true, QuotaName: "pods"}
		}, stage: plan.Finished, reason: training.FailureResourceQuota},
		"an older job waits, and it is refused again": {after: early, refused: true, older: true, stage: plan.Held, waits: true},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := overQuotaScene(t, kind)
				scene.storeVerdict()
				scene.setTime(tc.after)
				scene.observed.Refusal, scene.observed.OlderWaits = nil, tc.older
				if tc.refused {
					scene.observed.Refusal = overQuota
				}
				if tc.happen != nil {
					tc.happen(scene)
				}
				verdict := scene.storeVerdict()
				if verdict.Stage != tc.stage || verdict.FailureReason != tc.reason || verdict.Restart != nil {
					t.Errorf("%s, stage %s, failed with %q: %s", verdict.Phase, verdict.Stage, verdict.FailureReason, verdict.FailureMessage)
				}
				wait := scene.previous().QuotaWait
				if (wait != nil) != tc.waits {
					t.Fatalf("it waits for %+v", wait)
				}
				if tc.waits && (!wait.Since.Time.Equal(at(present)) || verdict.NextCheck != quotaRetryPause || verdict.Waiting.Reason != reasonQuota) {
					t.Errorf("it waits since %v for %+v, and next check in %s", wait.Since, verdict.Waiting, verdict.NextCheck)
				}
			})
		}
	}
}

// A job that deleted its pods for a quota creates them again and runs.
func TestQuotaFreed(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := overQuotaScene(t, kind)
			scene.wantStage("refused", plan.Active)
			scene.observed.Refusal, scene.observed.OlderWaits = nil, true
			scene.wantStage("an older job waits", plan.Held)
			scene.everyPod(deleted(present))
			scene.wantStage("its pods are being deleted", plan.Held)
			scene.observed.OlderWaits = false
			scene.wantStage("the older job has its pods, and the own are not deleted yet", plan.Held)
			scene.observed.Launchers, scene.observed.Workers = nil, nil
			scene.wantStage("its pods are deleted", plan.Active)
			scene.setTime(present + 30)
			scene.addPods(runs)
			if verdict := scene.wantStage("all pods exist", plan.Active); verdict.Phase != training.PhaseRunning || scene.previous().QuotaWait != nil {
				t.Errorf("%s, waits for %+v", verdict.Phase, scene.previous().QuotaWait)
			}
			scene.wantStage("checked again", plan.Active)
		})
	}
}

// A launcher that waits for its workers may be refused when they are ready.
func TestQuotaRefusesWaitingLauncher(t *testing.T) {
	scene := newScene(t, job.KindMPIJob, 2, func(scene *scene) { scene.job.LauncherWaits = true })
	scene.addPods(runs)
	scene.observed.Launchers = nil
	scene.storeVerdict()
	scene.observed.Refusal = &Refusal{Role: training.RoleLauncher, Object: "Pod train-launcher-r0", Message: exceeded, Quota: true, QuotaName: "compute"}
	scene.wantStage("refused", plan.Active)
	scene.setTime(present + 30)
	scene.observed.Refusal = nil
	scene.wantStage("not tried again yet", plan.Active)
	if wait := scene.previous().QuotaWait; wait == nil || !wait.Since.Time.Equal(at(present)) {
		t.Errorf("it waits for %+v", wait)
	}
	scene.setTime(present + 60)
	scene.observed.Refusal = overQuota
	if verdict := scene.storeVerdict(); verdict.FailureReason != training.FailureResourceQuota {
		t.Errorf("%s %s", verdict.Phase, verdict.FailureReason)
	}
}

// The initializer's pod is refused like any other.
func TestQuotaRefusesInitializer(t *testing.T) {
	refused := &Refusal{Role: training.RoleInitializer, Object: "Pod train-initializer-r0", Message: exceeded, Quota: true, QuotaName: "compute"}
	for name, tc := range map[string]struct {
		after          float64
		refused, older bool
		happen         func(*scene)
		stage          plan.Stage
		waits          bool
		reason         training.FailureReason
	}{
		"refused again":                        {after: present + 20, refused: true, stage: plan.Initializing, waits: true},
		"not tried again yet":                  {after: present + 20, stage: plan.Initializing, waits: true},
		"an older job waits":                   {after: present + 20, older: true, stage: plan.Held, waits: true},
		"its pod exists":                       {after: present + 20, happen: initializingJob(nothing), stage: plan.Initializing},
		"its pod exists, an older job waits":   {after: present + 20, older: true, happen: initializingJob(nothing), stage: plan.Initializing},
		"its time is over, refused":            {after: present + 60, refused: true, stage: plan.Finished, reason: training.FailureResourceQuota},
		"its time is over, an older job waits": {after: present + 60, older: true, stage: plan.Finished, reason: training.FailureResourceQuota},
		"something else is in its way": {after: present + 20, happen: func(scene *scene) {
			scene.observed.Obstacle = &Condition{Reason: "WaitingForDeletion", Message: "Wait."}
		}, stage: plan.Initializing, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			scene := newScene(t, job.KindTrainJob, 2, withInitializer, backoffLimit(3))
			scene.observed.Refusal = refused
			scene.wantStage("refused", plan.Initializing)
			scene.setTime(tc.after)
			scene.observed.Refusal, scene.observed.OlderWaits = nil, tc.older
			if tc.refused {
				scene.observed.Refusal = refused
			}
			if tc.happen != nil {
				tc.happen(scene)
			}
			verdict := scene.storeVerdict()
			wait := scene.previous().QuotaWait
			if verdict.Stage != tc.stage || verdict.FailureReason != tc.reason || (wait != nil) != tc.waits || verdict.Restart != nil {
				t.Errorf("%s, stage %s, waits for %+v: %s", verdict.Phase, verdict.Stage, wait, verdict.FailureMessage)
			}
			if wait != nil && (!wait.Since.Time.Equal(at(present)) || verdict.NextCheck != quotaRetryPause) {
				t.Errorf("it waits since %v, and next check in %s", wait.Since, verdict.NextCheck)
			}
		})
	}
}

// Pods that a restart creates may be refused, too.
func TestQuotaRefusesRestart(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := runningScene(t, kind, backoffLimit(2))
			scene.launcher(exits(1, "Error", rankDied, 50))
			scene.wantStage("failed", plan.Restarting)
			scene.setTime(present + 10)
			if kind == job.KindTrainJob {
				scene.observed.Launchers, scene.observed.Workers = nil, nil
			}
			scene.observed.Refusal = overQuota
			scene.wantStage("refused", plan.Active)
			if wait := scene.previous().QuotaWait; wait == nil || !wait.Since.Time.Equal(at(present+10)) {
				t.Errorf("it waits for %+v", wait)
			}
			scene.observed.Refusal, scene.observed.OlderWaits = nil, true
			scene.wantStage("an older job waits", plan.Held)
			scene.observed.Launchers, scene.observed.Workers, scene.observed.OlderWaits = nil, nil, false
			scene.wantStage("the quota is free", plan.Active)
			scene.start = 1
			scene.addPods(runs)
			if verdict := scene.wantStage("running again", plan.Active); verdict.Phase != training.PhaseRunning || verdict.Restart.Count != 1 || verdict.QuotaWait != nil {
				t.Errorf("%s after %+v", verdict.Phase, verdict.Restart)
			}
		})
	}
}

// Messages of the API server may contain secrets.
func TestQuotaWaitIsRedacted(t *testing.T) {
	scene := overQuotaScene(t, job.KindTrainJob)
	scene.observed.Refusal = &Refusal{Object: "Pod x", Message: "exceeded quota: compute, password=hunter2", Quota: true}
	scene.storeVerdict()
	if wait := scene.previous().QuotaWait; wait == nil || strings.Contains(wait.Message, "hunter2") {
		t.Errorf("it waits for %+v", wait)
	}
}

// The gang's timeout starts with the first pod, even if others cannot be created.
func TestGangTimeoutStartsWithFirstPod(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(*scene)
		// starts is when the timeout starts; 0 is never.
		starts float64
	}{
		"no pods":                           {func(scene *scene) { scene.observed.Launchers, scene.observed.Workers = nil, nil }, 0},
		"the first of three":                {func(scene *scene) { scene.observed.Launchers, scene.observed.Workers = nil, scene.observed.Workers[:1] }, created},
		"two of three, the second is later": {func(scene *scene) { scene.observed.Launchers = nil; scene.worker(1, createdAt(40)) }, created},
		"all, the last is later":            {onWorker(createdAt(40)), created},
		"two are scheduled, one is missing": {func(scene *scene) { scene.everyPod(pullsImage); scene.observed.Workers = scene.observed.Workers[:1] }, created},
		"all are scheduled":                 {func(scene *scene) { scene.everyPod(pullsImage) }, 0},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := newScene(t, kind, 2)
				scene.addPods(nothing)
				tc.happen(scene)
				want := time.Duration(0)
				if tc.starts > 0 {
					want = at(tc.starts + 300).Sub(scene.observed.Now)
				}
				if verdict := scene.storeVerdict(); verdict.NextCheck != want {
					t.Errorf("next check in %s, want %s", verdict.NextCheck, want)
				}
				scene.setTime(5000)
				if verdict := scene.storeVerdict(); (verdict.FailureReason == training.FailureGangSchedulingTimeout) != (tc.starts > 0) {
					t.Errorf("%s: %s", verdict.Phase, verdict.FailureMessage)
				}
			})
		}
	}
}

// The timeout starts again for a launcher that is created long after its workers.
func TestGangTimeoutOfLaterLauncher(t *testing.T) {
	scene := newScene(t, job.KindMPIJob, 2, func(scene *scene) { scene.job.LauncherWaits = true })
	scene.addPods(runs)
	scene.everyPod(withCondition(corev1.PodReady, corev1.ConditionTrue, 1000, "", ""))
	scene.observed.Launchers = nil
	scene.setTime(1001)
	if verdict := scene.storeVerdict(); isFinished(verdict) || len(scene.lookups) > 0 || verdict.NextCheck != 0 {
		t.Errorf("without a launcher it is %s, needs %v and next check in %s: %s", verdict.Phase, scene.lookups, verdict.NextCheck, verdict.FailureMessage)
	}
	scene.observed.Launchers = []*corev1.Pod{scene.newPod(training.RoleLauncher, 0, createdAt(1002))}
	scene.setTime(1010)
	if verdict := scene.storeVerdict(); isFinished(verdict) || len(scene.lookups) > 0 || verdict.NextCheck != 292*time.Second {
		t.Errorf("with a launcher that is not scheduled it is %s, needs %v and next check in %s: %s", verdict.Phase, scene.lookups, verdict.NextCheck, verdict.FailureMessage)
	}
	scene.setTime(1302)
	if verdict := scene.storeVerdict(); verdict.FailureReason != training.FailureGangSchedulingTimeout {
		t.Errorf("after five minutes it is %s", verdict.Phase)
	}
}
