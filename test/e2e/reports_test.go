// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// hangAfter is short for a test. A job that is found after it may take longer by two
// examinations.
const hangAfter = 10 * time.Second

// hanging makes rank 3, on the second worker, differ from the others, which wait for it in
// a barrier.
const hanging = `
import os, signal, time
from mpi4py import MPI
world = MPI.COMM_WORLD
world.Barrier()
print("all ranks are up", flush=True)
if %s:
    %s
while True:
    world.Barrier()
`

// Ranks that make no progress are found, and the odd one is named with its host. A job
// that computes without a word is not.
func TestHangsOfRealPrograms(t *testing.T) {
	t.Parallel()
	rank3 := func(does string) string { return fmt.Sprintf(hanging, "world.rank == 3", does) }
	tests := map[string]struct {
		program string
		action  training.HangAction
		// reason of the condition; empty for a job that is not stalled.
		reason string
		odd    []int32
	}{
		"a receive without a send": {program: fmt.Sprintf(hanging, "True", "world.recv(source=MPI.ANY_SOURCE, tag=7)"), reason: "NoProgress"},
		"an endless loop":          {program: rank3("while True: pass"), reason: "SerialPhase", odd: []int32{3}},
		"a rank that sleeps":       {program: rank3("time.sleep(3600)"), action: training.HangFail, reason: "NoProgress", odd: []int32{3}},
		"a stopped process":        {program: rank3("os.kill(os.getpid(), signal.SIGSTOP)"), reason: "NoProgress", odd: []int32{3}},
		"silent work":              {program: fmt.Sprintf(hanging, "True", "while True: sum(range(10**6))")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := implementations[1].trainJob(2, test.program)
			object.Spec.Hang = &training.Hang{After: &metav1.Duration{Duration: hangAfter}}
			if test.action != "" {
				object.Spec.Hang.Action = &test.action
			}
			job := submit(t, object)
			job.waitForLog("all ranks are up")
			if test.reason == "" {
				job.staysUnsuspected(3 * hangAfter)
				return
			}
			stalled := job.until("the hang is found", 2*time.Minute, func(training.Progress) bool { return stalledCondition(job.object) != nil })
			if condition := stalledCondition(job.object); condition.Reason != test.reason {
				t.Errorf("reason %s, want %s: %s", condition.Reason, test.reason, condition.Message)
			}
			job.wantOdd(stalled, test.odd)
			if test.action == training.HangFail {
				ended := job.fails(training.FailureTraining, "rank 3", "train-worker-0-1")
				if ended.FailureCause != training.CauseStalled {
					t.Errorf("the cause is %q, want %q", ended.FailureCause, training.CauseStalled)
				}
			}
		})
	}
}

// stepping reports steps. Rank 3 makes a quarter of those of the others.
const stepping = `
import json, time
from mpi4py import MPI
rank, step = MPI.COMM_WORLD.rank, 0
print("all ranks are up", flush=True)
while True:
    step += 1
    print("trireme: " + json.dumps({"step": step}), flush=True)
    time.sleep(4 if rank == 3 else 1)
`

// With the times that nobody has set: a hang is found after 15 minutes and not before,
// silent work is not called one, and a rank that is slower than the others is an event.
func TestHangsInRealTime(t *testing.T) {
	if !isThorough() {
		t.Skip("it takes 20 minutes; make test-all runs it")
	}
	t.Parallel()
	const after, soon = 15 * time.Minute, 8 * time.Minute
	start := func(t *testing.T, program string) *theJob {
		t.Parallel()
		object := implementations[1].trainJob(2, program)
		object.Annotations = map[string]string{training.AnnotationTagOutput: "true"}
		job := submit(t, object)
		job.waitForLog("all ranks are up")
		return job
	}
	t.Run("a rank that sleeps", func(t *testing.T) {
		job := start(t, fmt.Sprintf(hanging, "world.rank == 3", "time.sleep(7200)"))
		job.staysUnsuspected(after - time.Minute)
		stalled := job.until("the hang is found", soon, func(training.Progress) bool { return stalledCondition(job.object) != nil })
		job.wantOdd(stalled, []int32{3})
	})
	t.Run("silent work", func(t *testing.T) {
		start(t, fmt.Sprintf(hanging, "True", "while True: sum(range(10**6))")).staysUnsuspected(after + soon)
	})
	t.Run("a slow rank", func(t *testing.T) {
		job := start(t, stepping)
		eventually.SucceedsWithin(t, 2*soon, "an event names the slow rank", func() error {
			var list corev1.EventList
			if err := job.client.List(t.Context(), &list, client.InNamespace(job.namespace)); err != nil {
				return err
			}
			for _, event := range list.Items {
				if event.Reason == "StragglerDetected" && strings.Contains(event.Message, "Rank 3 on train-worker-0-1") {
					return nil
				}
			}
			return fmt.Errorf("none of %d events does", len(list.Items))
		})
	})
}

func (job *theJob) wantOdd(shown training.Progress, want []int32) {
	job.t.Helper()
	if shown.Ranks == nil {
		job.t.Fatal("the status has no ranks")
	}
	var odd []int32
	for _, one := range shown.Ranks.Odd {
		odd = append(odd, one.Rank)
		if !strings.HasPrefix(one.Host, "train-worker-0-1") {
			job.t.Errorf("rank %d is on host %q, want train-worker-0-1", one.Rank, one.Host)
		}
	}
	if !slices.Equal(odd, want) {
		job.t.Errorf("odd ranks %v, want %v", odd, want)
	}
}

// stalledCondition is nil if the job is not stalled.
func stalledCondition(object client.Object) *metav1.Condition {
	conditions := object.(*v2alpha1.TrainJob).Status.Conditions
	i := slices.IndexFunc(conditions, func(one metav1.Condition) bool {
		return one.Type == training.ConditionStalled && one.Status == metav1.ConditionTrue
	})
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

// staysUnsuspected fails if the job is called stalled while it works.
func (job *theJob) staysUnsuspected(duration time.Duration) {
	job.t.Helper()
	for end := time.Now().Add(duration); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		job.refresh()
		if condition := stalledCondition(job.object); condition != nil {
			job.t.Fatalf("a job that works is stalled: %s", condition.Message)
		}
	}
}

// trainersProtocol reports by Kubeflow Trainer's protocol, as Hugging Face's Trainer does: to the
// address, with the token and the CA that its environment names. The other job reports for
// the first, and prints the answer.
const trainersProtocol = `
import json, os, ssl, time, urllib.error, urllib.request
from mpi4py import MPI

def report(url, percentage):
    status = {"progressPercentage": percentage, "metrics": [{"name": "loss", "value": "0.25"}]}
    with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
        headers = {"Authorization": "Bearer " + file.read(), "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps({"trainerStatus": status}).encode(), headers)
    tls = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    with urllib.request.urlopen(request, context=tls, timeout=20) as answer:
        return answer.status

MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    url = os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
    try:
        print("answer", report(url.replace("/intruder/", "/train/"), 99 if "/intruder/" in url else 40), flush=True)
    except urllib.error.HTTPError as refusal:
        print("answer", refusal.code, refusal.read().decode(), flush=True)
time.sleep(600)
`

// A program reports by Trainer's protocol: people see it within 10 s. A pod of another job
// that reports for it is refused and counted.
func TestProgressByTrainersProtocol(t *testing.T) {
	t.Parallel()
	server, ada := reachServer(t), newUser(t)
	jobs := fmt.Sprintf("/api/v1/namespaces/%s/trainjobs", ada.namespace)
	server.wants(t, ada, "POST", jobs, manifest(t, "TrainJob", "train", trainersProtocol), 201)
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	job := &theJob{t: t, client: api, namespace: ada.namespace, object: &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: ada.namespace, Name: "train"}}}
	job.waitForLog("answer 200")
	reported := time.Now()
	eventually.Succeeds(t, "odh describe and REST show the progress", func() error {
		described, _ := odh(t, 0, ada.namespace, "trainjob", "describe", "train")
		_, answer := server.curl(t, ada, "GET", jobs+"/train/status", nil)
		if !strings.Contains(described, "40") || !strings.Contains(described, "loss") || !strings.Contains(answer, `"progressPercentage":40`) {
			return fmt.Errorf("describe:\n%s\nREST: %s", described, answer)
		}
		return nil
	})
	if took := time.Since(reported); took > 10*time.Second {
		t.Logf("the progress was shown after %s: the machine is slow, or the operator", took)
	}
	server.until(t, ada, jobs+"/train/metrics/curves", `"loss"`)

	needsLocalCluster(t, "pods of the operator are called from this machine")
	metrics := newMetricsReader(t)
	before := metrics.refusedReports()
	server.wants(t, ada, "POST", jobs, manifest(t, "TrainJob", "intruder", trainersProtocol), 201)
	intruder := &theJob{t: t, client: api, namespace: ada.namespace, object: &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: ada.namespace, Name: "intruder"}}}
	intruder.waitForLog("answer 401") // its token is for its own address
	if after := metrics.refusedReports(); after <= before {
		t.Errorf("%v reports were refused before, and %v after a refusal", before, after)
	}
	if status := job.refresh().TrainerStatus; status == nil || *status.ProgressPercentage != 40 {
		t.Errorf("the progress of the job is %+v after another job has reported 99 for it", status)
	}
}

// refusedReports is the counter of all replicas of the operator.
func (reader *metricsReader) refusedReports() (sum float64) {
	reader.t.Helper()
	for _, pod := range operatorPods(reader.t) {
		sum += reader.read(pod)["training_operator_reports_refused_total"]
	}
	return sum
}

// counting reports a step five times in a second, for as long as it is let.
const counting = `
import time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
step = 0
while True:
    step += 1
    if MPI.COMM_WORLD.rank == 0:
        print('trireme: {"step": %d, "of": 1000000, "loss": %f}' % (step, 1 / step), flush=True)
    time.sleep(0.2)
`

// The operator and the server are killed while ranks report: the progress never goes back,
// the metrics over time begin where they began, and what is reported afterwards follows.
// The job does not notice.
func TestOperatorAndServerAreKilledWhileRanksReport(t *testing.T) {
	if !isThorough() {
		t.Skip("waits until the Lease of a killed leader has expired: make test-all runs it, and TestNextLeaderRestoresCurves has the operator's part")
	}
	needsLocalCluster(t, "all replicas are killed")
	ada := newUser(t)
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	job := submitTo(t, api, ada.namespace, implementations[1].trainJob(2, counting))
	var before []reports.Point
	server := reachServer(t)
	eventually.Succeeds(t, "the metrics have some points", func() (err error) {
		before, err = server.lossOf(t, ada)
		if err == nil && len(before) < 3 {
			err = fmt.Errorf("they are %+v", before)
		}
		return err
	})
	children, last := job.children(), job.steps(0)

	kubectl(t, "delete pods --namespace trireme-system --selector 'app.kubernetes.io/component in (operator, server)' --force --grace-period=0")
	killed := time.Now()
	after := job.written()
	eventually.SucceedsWithin(t, recovery, "the status has steps from after the kill", func() error {
		if last = job.steps(last); last <= after {
			return fmt.Errorf("it has step %d, and %d was written at the kill", last, after)
		}
		return nil
	})
	t.Logf("the progress continued %s after all replicas were killed", time.Since(killed).Round(100*time.Millisecond))
	waitUntilWell(t)
	server = reachServer(t)
	eventually.SucceedsWithin(t, recovery, "the metrics have points from before and after the kill", func() error {
		now, err := server.lossOf(t, ada)
		if err != nil {
			return err
		}
		if first := now[0]; !first.Time.Truncate(time.Millisecond).Equal(before[0].Time.Truncate(time.Millisecond)) || first.Value != before[0].Value {
			return fmt.Errorf("they began with %+v, and now with %+v", before[0], first)
		}
		if newest := now[len(now)-1]; *newest.Step <= after || len(now) <= len(before) {
			return fmt.Errorf("%d points, the newest is of step %d", len(now), *newest.Step)
		}
		return nil
	})
	server.wants(t, ada, "GET", "/api/v1/namespaces/"+ada.namespace+"/trainjobs/train/ranks", nil, 200, `"rank":0`, `"rank":3`)
	if diff := cmp.Diff(children, job.children()); diff != "" {
		t.Errorf("the pods of the job (- before, + after):\n%s", diff)
	}
	if stalled := stalledCondition(job.object); stalled != nil {
		t.Errorf("the job is called stalled: %s", stalled.Message)
	}
}

// lossOf is the metric over time.
func (server *theServer) lossOf(t *testing.T, by user) ([]reports.Point, error) {
	t.Helper()
	code, answer := server.curl(t, by, "GET", "/api/v1/namespaces/"+by.namespace+"/trainjobs/train/metrics/curves", nil)
	var all reports.JobCurves
	if err := json.Unmarshal([]byte(answer), &all); err != nil || code != 200 || len(all.Curves) != 1 {
		return nil, fmt.Errorf("%d %s: %v", code, answer, err)
	}
	return all.Curves[0].Points, nil
}

// steps is the step in the status, which must not be before the last one.
func (job *theJob) steps(last int64) int64 {
	job.t.Helper()
	var step int64
	if status := job.refresh().TrainerStatus; status != nil && status.Step != nil {
		step = *status.Step
	}
	if step < last {
		job.t.Errorf("the status has step %d after step %d", step, last)
	}
	return step
}

// written is the number of steps that the program has written.
func (job *theJob) written() int64 {
	return int64(strings.Count(job.log(), "trireme: {"))
}
