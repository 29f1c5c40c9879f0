// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// role is a status of a replicated job: ready, succeeded, failed, suspended, active.
func role(name string, ready, succeeded, failed, suspended, active int32) jobset.ReplicatedJobStatus {
	return jobset.ReplicatedJobStatus{Name: name, Ready: ready, Succeeded: succeeded, Failed: failed, Suspended: suspended, Active: active}
}

// storeJobSet stores the verdict in the status of the job and of its JobSet.
func storeJobSet(scene *scene, set *jobset.JobSet) Verdict {
	scene.t.Helper()
	verdict := scene.storeVerdict()
	verdict.JobSetStatus(scene.job, set, metav1.NewTime(scene.observed.Now))
	*set = stored(scene.t, *set)
	return verdict
}

func jobSetCondition(set *jobset.JobSet, kind jobset.JobSetConditionType) string {
	if found := meta.FindStatusCondition(set.Status.Conditions, string(kind)); found != nil {
		return fmt.Sprintf("%s %s: %s", found.Status, found.Reason, found.Message)
	}
	return ""
}

// A JobSet counts child Jobs, not pods: each role has one.
func TestJobSetCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		happen           func(*scene)
		launcher, worker jobset.ReplicatedJobStatus
	}{
		"one worker is ready":   {func(scene *scene) { scene.worker(0, runs) }, role("launcher", 0, 0, 0, 0, 1), role("worker", 0, 0, 0, 0, 1)},
		"all workers are ready": {func(scene *scene) { scene.worker(0, runs); scene.worker(1, runs) }, role("launcher", 0, 0, 0, 0, 1), role("worker", 1, 0, 0, 0, 1)},
		"all are ready":         {func(scene *scene) { scene.everyPod(runs) }, role("launcher", 1, 0, 0, 0, 1), role("worker", 1, 0, 0, 0, 1)},
		"one worker succeeded":  {func(scene *scene) { scene.everyPod(runs); scene.worker(1, exits(0, "", "", 50)) }, role("launcher", 1, 0, 0, 0, 1), role("worker", 1, 0, 0, 0, 1)},
		"all workers succeeded": {func(scene *scene) {
			scene.everyPod(runs)
			scene.worker(0, exits(0, "", "", 50))
			scene.worker(1, exits(0, "", "", 50))
		}, role("launcher", 1, 0, 0, 0, 1), role("worker", 0, 1, 0, 0, 0)},
		"one worker is being deleted": {func(scene *scene) { scene.everyPod(runs); scene.worker(1, deleted(50)) }, role("launcher", 1, 0, 0, 0, 1), role("worker", 0, 0, 0, 0, 1)},
		"only one is left, being deleted": {func(scene *scene) {
			scene.everyPod(runs, deleted(50))
			scene.observed.Launchers, scene.observed.Workers = nil, scene.observed.Workers[:1]
		}, role("launcher", 0, 0, 0, 0, 0), role("worker", 0, 0, 0, 0, 1)},
		"one worker failed":                 {func(scene *scene) { scene.everyPod(runs); scene.worker(1, outOfMemory(50)) }, role("launcher", 1, 0, 0, 0, 1), role("worker", 0, 0, 1, 0, 1)},
		"launcher failed":                   {func(scene *scene) { scene.everyPod(runs); scene.launcher(exits(1, "Error", "", 50)) }, role("launcher", 0, 0, 1, 0, 0), role("worker", 1, 0, 0, 0, 1)},
		"launcher succeeded":                {func(scene *scene) { scene.everyPod(runs); scene.launcher(exits(0, "Completed", "", 50)) }, role("launcher", 0, 1, 0, 0, 0), role("worker", 1, 0, 0, 0, 1)},
		"launcher's command succeeded":      {func(scene *scene) { scene.everyPod(runs); scene.launcher(exitsFirst(0, "Completed", "", 50)) }, role("launcher", 0, 1, 0, 0, 1), role("worker", 1, 0, 0, 0, 1)},
		"suspended, pods are being deleted": {suspendSet(func(scene *scene) { scene.everyPod(runs, deleted(50)) }), role("launcher", 0, 0, 0, 1, 1), role("worker", 0, 0, 0, 1, 1)},
		"suspended, all pods are deleted":   {suspendSet(func(scene *scene) { scene.observed.Launchers, scene.observed.Workers = nil, nil }), role("launcher", 0, 0, 0, 1, 0), role("worker", 0, 0, 0, 1, 0)},
		"suspended, a pod has failed by it": {suspendSet(func(scene *scene) { scene.everyPod(runs); scene.worker(1, deleted(50), exits(143, "Error", "", 51)) }), role("launcher", 1, 0, 0, 1, 1), role("worker", 0, 0, 1, 1, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			scene := newScene(t, job.KindTrainJob, 2)
			scene.addPods(nothing)
			tc.happen(scene)
			set := &jobset.JobSet{Spec: jobset.JobSetSpec{Suspend: new(scene.observed.Workload.Suspended)}}
			storeJobSet(scene, set)
			if diff := cmp.Diff([]jobset.ReplicatedJobStatus{tc.launcher, tc.worker}, set.Status.ReplicatedJobsStatus); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// Kueue adds what is ready to what succeeded, and compares it with two roles.
			for _, status := range set.Status.ReplicatedJobsStatus {
				if status.Ready+status.Succeeded > 1 {
					t.Errorf("Kueue counts %s twice: %+v", status.Name, status)
				}
			}
		})
	}
}

// A JobSet whose pods were only created has no status: no client needs that write.
func TestJobSetOfWaitingPods(t *testing.T) {
	scene := newScene(t, job.KindTrainJob, 2)
	scene.addPods(nothing)
	set := &jobset.JobSet{}
	if storeJobSet(scene, set); set.Status.ReplicatedJobsStatus != nil {
		t.Errorf("there is a status: %+v", set.Status)
	}
	// A status that exists is kept up to date.
	set.Status.ReplicatedJobsStatus = []jobset.ReplicatedJobStatus{role("launcher", 1, 0, 0, 0, 1), role("worker", 1, 0, 0, 0, 1)}
	want := []jobset.ReplicatedJobStatus{role("launcher", 0, 0, 0, 0, 1), role("worker", 0, 0, 0, 0, 1)}
	storeJobSet(scene, set)
	if diff := cmp.Diff(want, set.Status.ReplicatedJobsStatus); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func suspendSet(happen func(*scene)) func(*scene) {
	return func(scene *scene) {
		scene.observed.Workload.Suspended = true
		happen(scene)
	}
}

// Kueue and kubectl wait read the job's result from the conditions of the JobSet.
func TestJobSetConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		happen                       func(*scene)
		completed, failed, suspended string
		terminal                     string
	}{
		"runs":      {happen: func(*scene) {}},
		"succeeded": {happen: onLauncher(exits(0, "Completed", "", 50)), completed: "True AllJobsCompleted: The launcher completed successfully", terminal: "Completed"},
		"failed": {
			happen: onWorker(exits(1, "Error", "", 50)), terminal: "Failed",
			failed: "True WorkerFailed: Worker 1 (pod {worker 1} on node node-1) exited with code 1. See its log: kubectl logs {worker 1} -c main -n team.",
		},
		"suspended": {happen: suspendSet(func(*scene) {}), suspended: "True SuspendedJobs: jobset is suspended"},
	} {
		t.Run(name, func(t *testing.T) {
			scene := runningScene(t, job.KindTrainJob)
			tc.happen(scene)
			set := &jobset.JobSet{Spec: jobset.JobSetSpec{Suspend: new(scene.observed.Workload.Suspended)}}
			storeJobSet(scene, set)
			for kind, want := range map[jobset.JobSetConditionType]string{jobset.JobSetCompleted: tc.completed, jobset.JobSetFailed: tc.failed, jobset.JobSetSuspended: tc.suspended} {
				if found := jobSetCondition(set, kind); found != scene.expand(want) {
					t.Errorf("%s is %q, want %q", kind, found, scene.expand(want))
				}
			}
			if set.Status.TerminalState != tc.terminal {
				t.Errorf("terminal state %q", set.Status.TerminalState)
			}
		})
	}
}

// The status of a JobSet while its job is queued, restarted, finished and cleaned up.
func TestJobSetStatusByStep(t *testing.T) {
	scene := newScene(t, job.KindTrainJob, 2, backoffLimit(1))
	set := &jobset.JobSet{Spec: jobset.JobSetSpec{Suspend: new(true)}}
	scene.observed.Workload = Workload{Exists: true, Suspended: true}
	storeJobSet(scene, set)
	if found := jobSetCondition(set, jobset.JobSetSuspended); !strings.HasPrefix(found, "True ") {
		t.Errorf("queued: %s", found)
	}
	scene.setTime(70)
	set.Spec.Suspend, scene.observed.Workload.Suspended = new(false), false
	storeJobSet(scene, set)
	scene.addPods(runs)
	storeJobSet(scene, set)
	if found := jobSetCondition(set, jobset.JobSetSuspended); found != "False ResumeJobs: jobset is resumed" {
		t.Errorf("running: %s", found)
	}
	before := set.DeepCopy()
	storeJobSet(scene, set)
	if !equality.Semantic.DeepEqual(before, set) {
		t.Errorf("a JobSet at rest is written (-before +after):\n%s", cmp.Diff(before, set))
	}

	scene.worker(1, outOfMemory(70))
	storeJobSet(scene, set)
	if set.Status.Restarts != 1 || set.Status.RestartsCountTowardsMax != 1 || set.Status.TerminalState != "" {
		t.Errorf("restarting: %+v", set.Status)
	}
	scene.setTime(80)
	scene.nextStart(runs)
	storeJobSet(scene, set)
	if worker := set.Status.ReplicatedJobsStatus[1]; !equality.Semantic.DeepEqual(worker, role("worker", 1, 0, 0, 0, 1)) {
		t.Errorf("restarted: %+v", worker)
	}

	scene.setTime(100)
	scene.launcher(exits(0, "Completed", "", 99))
	storeJobSet(scene, set)
	done := jobSetCondition(set, jobset.JobSetCompleted)
	scene.observed.Workers = nil
	storeJobSet(scene, set)
	want := []jobset.ReplicatedJobStatus{role("launcher", 0, 1, 0, 0, 0), role("worker", 0, 0, 0, 0, 0)}
	if diff := cmp.Diff(want, set.Status.ReplicatedJobsStatus); diff != "" {
		t.Errorf("workers are deleted (-want +got):\n%s", diff)
	}
	scene.observed.Launchers = nil
	storeJobSet(scene, set)
	if diff := cmp.Diff(want, set.Status.ReplicatedJobsStatus); diff != "" {
		t.Errorf("the launcher is deleted (-want +got):\n%s", diff)
	}
	if found := jobSetCondition(set, jobset.JobSetCompleted); found != done || set.Status.TerminalState != "Completed" || set.Status.Restarts != 1 {
		t.Errorf("afterwards: %s, %+v", found, set.Status)
	}
}

// Counts of pods that failed are kept after they are deleted.
func TestJobSetKeepsFailures(t *testing.T) {
	scene := runningScene(t, job.KindTrainJob)
	set := &jobset.JobSet{}
	scene.worker(1, outOfMemory(50))
	storeJobSet(scene, set)
	withoutPods(Workload{Exists: true})(scene)
	storeJobSet(scene, set)
	want := []jobset.ReplicatedJobStatus{role("launcher", 0, 0, 0, 0, 0), role("worker", 0, 0, 1, 0, 0)}
	if diff := cmp.Diff(want, set.Status.ReplicatedJobsStatus); diff != "" || set.Status.TerminalState != "Failed" {
		t.Errorf("%s (-want +got):\n%s", set.Status.TerminalState, diff)
	}
}

// batchJobErrors are what the API server of Kubernetes 1.36 refuses of a change to a
// Job's status, as far as a Job can come to it that is not indexed
// (ValidateJobStatusUpdate of pkg/apis/batch/validation).
func batchJobErrors(before, after *batchv1.Job) (errors []string) {
	is := func(batch *batchv1.Job, kind batchv1.JobConditionType) bool {
		return slices.ContainsFunc(batch.Status.Conditions, func(condition batchv1.JobCondition) bool {
			return condition.Type == kind && condition.Status == corev1.ConditionTrue
		})
	}
	status := &after.Status
	complete, failed := is(after, batchv1.JobComplete), is(after, batchv1.JobFailed)
	finished := complete || failed
	for message, isWrong := range map[string]bool{
		"must be greater than or equal to 0":                   status.Active < 0 || status.Succeeded < 0 || status.Failed < 0 || status.Ready != nil && *status.Ready < 0,
		"cannot set Complete=True and Failed=true":             complete && failed,
		"cannot set Complete=True and FailureTarget=true":      complete && is(after, batchv1.JobFailureTarget),
		"completionTime without Complete=True":                 status.CompletionTime != nil && !complete,
		"completionTime is required for Complete jobs":         status.CompletionTime == nil && complete,
		"completionTime must be equal to or after startTime":   status.StartTime != nil && status.CompletionTime != nil && status.CompletionTime.Before(status.StartTime),
		"cannot set Failed=True without FailureTarget=true":    failed && !is(after, batchv1.JobFailureTarget),
		"cannot set Complete=True without SuccessCriteriaMet":  complete && !is(after, batchv1.JobSuccessCriteriaMet),
		"active>0 is invalid for finished job":                 status.Active > 0 && finished,
		"startTime is required for finished job":               status.StartTime == nil && finished,
		"cannot set more ready pods than active":               status.Ready != nil && *status.Ready > status.Active,
		"cannot set SuccessCriteriaMet=True and Failed=true":   is(after, batchv1.JobSuccessCriteriaMet) && failed,
		"SuccessCriteriaMet=True and FailureTarget=true":       is(after, batchv1.JobSuccessCriteriaMet) && is(after, batchv1.JobFailureTarget),
		"cannot decrease the failed counter":                   status.Failed < before.Status.Failed,
		"cannot decrease the succeeded counter":                status.Succeeded < before.Status.Succeeded,
		"completionTime is immutable":                          before.Status.CompletionTime != nil && !before.Status.CompletionTime.Equal(status.CompletionTime),
		"startTime is immutable for unsuspended job once set":  before.Status.StartTime != nil && !before.Status.StartTime.Equal(status.StartTime),
		"cannot disable the terminal Complete=True condition":  is(before, batchv1.JobComplete) && !complete,
		"cannot disable the terminal Failed=True condition":    is(before, batchv1.JobFailed) && !failed,
		"cannot disable the FailureTarget=True condition":      is(before, batchv1.JobFailureTarget) && !is(after, batchv1.JobFailureTarget),
		"cannot disable the SuccessCriteriaMet=True condition": is(before, batchv1.JobSuccessCriteriaMet) && !is(after, batchv1.JobSuccessCriteriaMet),
		"a finished Job was changed":                           (is(before, batchv1.JobComplete) || is(before, batchv1.JobFailed)) && !equality.Semantic.DeepEqual(before.Status, after.Status),
	} {
		if isWrong {
			errors = append(errors, message)
		}
	}
	return errors
}

// storeBatchJob stores the verdict in the status of the job and of its launcher's Job.
func storeBatchJob(scene *scene, batch *batchv1.Job) {
	scene.t.Helper()
	verdict := scene.storeVerdict()
	before := batch.DeepCopy()
	verdict.BatchJobStatus(batch, metav1.NewTime(scene.observed.Now))
	*batch = stored(scene.t, *batch)
	for _, message := range batchJobErrors(before, batch) {
		scene.t.Errorf("the API server refuses it: %s (-before +after):\n%s", message, cmp.Diff(before.Status, batch.Status))
	}
}

func batchConditions(batch *batchv1.Job) (found []string) {
	for _, condition := range batch.Status.Conditions {
		found = append(found, fmt.Sprintf("%s=%s %s", condition.Type, condition.Status, condition.Reason))
	}
	return found
}

func TestBatchJobStatus(t *testing.T) {
	succeeded, failed := []string{"SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"}, []string{"FailureTarget=True TrainingError", "Failed=True TrainingError"}
	for name, tc := range map[string]struct {
		happen                    func(*scene)
		active                    int32
		started                   bool
		countSucceeded, countFail int32
		conditions                []string
	}{
		"no launcher yet":               {happen: func(scene *scene) { scene.observed.Launchers, scene.observed.Workers = nil, nil }},
		"launcher waits":                {happen: func(*scene) {}, active: 1, started: true},
		"launcher is ready":             {happen: onLauncher(runs), active: 1, started: true},
		"launcher is being deleted":     {happen: onLauncher(runs, deleted(50)), active: 1, started: true},
		"launcher succeeded":            {happen: onLauncher(runs, exits(0, "Completed", "", 50)), started: true, countSucceeded: 1, conditions: succeeded},
		"command succeeded, pod runs":   {happen: onLauncher(runs, exitsFirst(0, "Completed", "", 50)), active: 1, started: true},
		"launcher failed":               {happen: onLauncher(runs, exits(1, "Error", rankDied, 50)), started: true, countFail: 1, conditions: failed},
		"command failed, pod runs":      {happen: onLauncher(runs, exitsFirst(1, "Error", rankDied, 50)), active: 1, started: true},
		"worker failed, launcher runs":  {happen: func(scene *scene) { scene.everyPod(runs); scene.worker(1, outOfMemory(50)) }, active: 1, started: true},
		"refused before it had any pod": {happen: func(scene *scene) { refused(Refusal{Object: "Pod x", Message: "no"})(scene); scene.forgetPods() }, started: true, countFail: 1, conditions: []string{"FailureTarget=True LauncherFailed", "Failed=True LauncherFailed"}},
	} {
		t.Run(name, func(t *testing.T) {
			scene := newScene(t, job.KindMPIJob, 2)
			scene.addPods(nothing)
			tc.happen(scene)
			batch := &batchv1.Job{}
			storeBatchJob(scene, batch)
			status := &batch.Status
			if status.Active != tc.active || status.Ready != nil || status.Succeeded != tc.countSucceeded || status.Failed != tc.countFail || (status.StartTime != nil) != tc.started {
				t.Errorf("status %+v", status)
			}
			if diff := cmp.Diff(tc.conditions, batchConditions(batch)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			storeBatchJob(scene, batch)
		})
	}
}

// Over restarts the count of failures only grows, and the Job finishes only when no pod
// is active.
func TestBatchJobStatusByStep(t *testing.T) {
	for name, tc := range map[string]struct {
		code int32
		want []string
	}{
		"succeeds": {0, []string{"SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"}},
		"fails":    {1, []string{"FailureTarget=True TrainingError", "Failed=True TrainingError"}},
	} {
		t.Run(name, func(t *testing.T) {
			scene := newScene(t, job.KindMPIJob, 2, backoffLimit(2))
			batch := &batchv1.Job{}
			storeBatchJob(scene, batch)
			scene.addPods(runs)
			storeBatchJob(scene, batch)
			for try := range int32(2) {
				now := float64(100 * (try + 1))
				scene.setTime(now)
				scene.launcher(exits(1, "Error", rankDied, now))
				storeBatchJob(scene, batch)
				if batch.Status.Failed != try+1 || batch.Status.Active != 0 {
					t.Errorf("failure %d: %+v", try+1, batch.Status)
				}
				scene.setTime(now + 50)
				// A user deletes the pod that is kept for its log.
				scene.observed.Launchers = nil
				storeBatchJob(scene, batch)
				scene.nextStart(runs)
				storeBatchJob(scene, batch)
				if batch.Status.Failed != try+1 || batch.Status.Active != 1 || len(batch.Status.Conditions) > 0 {
					t.Errorf("restart %d: %+v", try+1, batch.Status)
				}
			}
			scene.setTime(400)
			scene.launcher(exitsFirst(tc.code, "", rankDied, 399))
			storeBatchJob(scene, batch)
			if len(batch.Status.Conditions) > 0 {
				t.Errorf("its pod still runs, and it is %v", batchConditions(batch))
			}
			scene.launcher(exits(tc.code, "", rankDied, 399))
			storeBatchJob(scene, batch)
			if diff := cmp.Diff(tc.want, batchConditions(batch)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if batch.Status.Failed != 2+tc.code || batch.Status.Succeeded != 1-tc.code {
				t.Errorf("finished: %+v", batch.Status)
			}
			scene.setTime(500)
			withoutPods(Workload{Exists: true})(scene)
			storeBatchJob(scene, batch)
		})
	}
}

// The API server accepts the status of the workload for any observation.
func TestWorkloadStatusIsValid(t *testing.T) {
	var before *job.Job
	batch, set := &batchv1.Job{}, &jobset.JobSet{}
	eachRandomJob(t, 10, func(t *testing.T, scene *scene) {
		if scene.job != before {
			before, batch, set = scene.job, &batchv1.Job{}, &jobset.JobSet{}
		}
		scene.t = t
		if scene.job.Kind == job.KindMPIJob {
			storeBatchJob(scene, batch)
			return
		}
		terminal := set.Status.TerminalState
		storeJobSet(scene, set)
		if terminal != "" && set.Status.TerminalState != terminal {
			t.Errorf("its terminal state was %s and is %s", terminal, set.Status.TerminalState)
		}
		for _, condition := range set.Status.Conditions {
			if !validReason.MatchString(condition.Reason) || len(condition.Message) > maxMessage {
				t.Errorf("condition %+v", condition)
			}
		}
		for _, status := range set.Status.ReplicatedJobsStatus {
			for _, count := range []int32{status.Ready, status.Succeeded, status.Failed, status.Active, status.Suspended} {
				if count < 0 || count > 1 {
					t.Errorf("status %+v", status)
				}
			}
		}
		if scene.previous().Phase == training.PhaseFailed != (set.Status.TerminalState == "Failed") {
			t.Errorf("the job is %s and its JobSet %q", scene.previous().Phase, set.Status.TerminalState)
		}
	})
}
