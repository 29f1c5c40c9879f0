// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

func TestOperator(t *testing.T) {
	renewed := func(seconds int) func(*Facts) {
		return func(facts *Facts) {
			facts.Lease.Value.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-time.Duration(seconds) * time.Second)}
		}
	}
	down := func(facts *Facts) { facts.Deployment.Value.Status.ReadyReplicas = 0 }
	noDeployment := func(facts *Facts) { facts.Deployment = Known[*appsv1.Deployment]{} }
	noLease := func(facts *Facts) { facts.Lease = Known[*coordinationv1.Lease]{} }
	table(t, operator, pending, map[string]tableCase{
		"an operator that works":              {},
		"a Lease that is due":                 {change: renewed(40)},
		"a Lease that nobody renews":          {change: renewed(50), want: []string{"likely: No operator processes jobs"}, fix: "kubectl logs -n trireme-system"},
		"a Lease without a time":              {change: func(facts *Facts) { facts.Lease.Value.Spec.RenewTime = nil }},
		"an operator that is not ready":       {change: down, want: []string{"likely: The operator is not ready"}},
		"a new job and no operator":           {change: all(down, func(facts *Facts) { facts.Previous.Phase = "" }), want: []string{"certain: The operator is not ready"}},
		"no operator":                         {change: all(noDeployment, noLease), want: []string{"possible: The operator was not found"}, fix: "kubectl get deployments -A"},
		"one without leader election":         {change: noLease},
		"one that is deployed in another way": {change: noDeployment},
		"one that may not be looked at": {change: func(facts *Facts) {
			facts.Deployment, facts.Lease = Known[*appsv1.Deployment]{Unknown: "may not"}, Known[*coordinationv1.Lease]{Unknown: "may not"}
		}, want: []string{"not known: The operator"}},
		"a job that failed does not need one":  {change: all(down, fails(training.FailureTraining, "x"))},
		"one of which only the Lease is known": {change: all(renewed(99), func(facts *Facts) { facts.Deployment = Known[*appsv1.Deployment]{Unknown: "may not"} }), want: []string{"likely: No operator processes jobs"}},
	})
}

func conditioned(name string, conditions ...any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": conditions}}}
	object.SetName(name)
	return object
}

func answerOf(question, status, message string) map[string]any {
	return map[string]any{"type": question, "status": status, "reason": "Pending", "message": message}
}

func TestQueue(t *testing.T) {
	queued := func(facts *Facts) {
		facts.Job.Queue, facts.KueueServed = "main", true
		facts.Queue.Value = conditioned("main", answerOf("Active", "True", ""))
	}
	table(t, queue, pending, map[string]tableCase{
		"no queue":                     {},
		"a queue that is well":         {change: queued},
		"a queue and no Kueue":         {change: func(facts *Facts) { facts.Job.Queue = "main" }, want: []string{"note: Kueue is not installed"}},
		"a suspended job and no Kueue": {change: func(facts *Facts) { facts.Job.Queue, facts.Job.Suspended = "main", true }, want: []string{"certain: Kueue is not installed"}, fix: "kueue.x-k8s.io/queue-name"},
		"a queue that is missing":      {change: all(queued, func(facts *Facts) { facts.Queue.Value = nil }), want: []string{"certain: Queue main is missing"}, fix: "kubectl get localqueue -n team"},
		"a queue that is not active": {change: all(queued, func(facts *Facts) {
			facts.Queue.Value = conditioned("main", answerOf("Active", "False", "no ClusterQueue"))
		}), want: []string{"certain: Queue main is not active"}, fix: "kubectl describe localqueue main -n team"},
		"a queue that may not be read": {change: all(queued, func(facts *Facts) { facts.Queue.Unknown = "may not list" }), want: []string{"not known: Queue main"}},
		"no workload":                  {change: all(queued, func(facts *Facts) { facts.Previous.Queued = true }), want: []string{"likely: The job is waiting in queue main"}},
		"a workload without room": {change: all(queued, func(facts *Facts) {
			facts.Workload.Value = conditioned("w", answerOf("QuotaReserved", "False", "insufficient quota"))
		}), want: []string{"certain: The job is waiting in queue main"}, fix: "kubectl describe workload w -n team"},
		"a workload that waits": {change: all(queued, func(facts *Facts) {
			facts.Workload.Value = conditioned("w", answerOf("QuotaReserved", "True", ""), answerOf("Admitted", "False", "checks"))
		}), want: []string{"certain: The job is waiting in queue main"}},
		"a workload that is admitted": {change: all(queued, func(facts *Facts) {
			facts.Workload.Value = conditioned("w", answerOf("QuotaReserved", "True", ""), answerOf("Admitted", "True", ""))
		})},
		"a workload that is deactivated": {change: all(queued, func(facts *Facts) {
			facts.Workload.Value = conditioned("w", answerOf("QuotaReserved", "False", "deactivated"))
			facts.Workload.Value.Object["spec"] = map[string]any{"active": false}
		}), want: []string{"certain: Kueue's Workload of the job is deactivated"}, fix: `kubectl patch workload w -n team --type merge -p '{"spec":{"active":true}}'`},
		"a workload that may not be read": {change: all(queued, func(facts *Facts) { facts.Workload.Unknown = "may not list" }), want: []string{"not known: Kueue's Workload of the job"}},
		"a job that has its nodes":        {change: all(func(facts *Facts) { facts.Job.Queue = "main" }, reach(training.StepScheduled))},
	})
}

// workloadOf is a Workload of the queue main; a higher age is older.
func workloadOf(name string, priority int64, age int, conditions ...any) unstructured.Unstructured {
	workload := conditioned(name, conditions...)
	workload.Object["spec"] = map[string]any{"queueName": "main", "priority": priority}
	workload.SetCreationTimestamp(ago(age))
	workload.SetOwnerReferences([]metav1.OwnerReference{{Kind: "MPIJob", Name: "job-of-" + name}})
	return *workload
}

func TestWhyAWorkloadWaits(t *testing.T) {
	waits, reserved := answerOf("QuotaReserved", "False", "insufficient unused quota for cpu, 1 more needed"), answerOf("QuotaReserved", "True", "")
	inactive := workloadOf("inactive", 9, 99, waits)
	inactive.Object["spec"].(map[string]any)["active"] = false
	requeued := workloadOf("w", 0, 10, waits, answerOf("Evicted", "True", "Preempted to accommodate a workload (UID: 1)"))
	_ = unstructured.SetNestedField(requeued.Object, "2026-03-14T12:05:00Z", "status", "requeueState", "requeueAt")
	const reason = "Pending: insufficient unused quota for cpu, 1 more needed."
	for name, tc := range map[string]struct {
		workloads []unstructured.Unstructured
		want      string
	}{
		"alone": {[]unstructured.Unstructured{workloadOf("w", 0, 10, waits)}, reason + " It is number 1 of 1 in this queue, which uses ClusterQueue vision."},
		"behind an older one and one of higher priority": {
			[]unstructured.Unstructured{workloadOf("w", 0, 10, waits), workloadOf("older", 0, 20, waits), workloadOf("urgent", 5, 1, waits), workloadOf("younger", 0, 5, waits), inactive},
			reason + " It is number 3 of 4 in this queue, which uses ClusterQueue vision.",
		},
		"behind those that have quota": {
			[]unstructured.Unstructured{workloadOf("w", 0, 10, waits), workloadOf("b", 0, 1, reserved), workloadOf("a", 0, 1, reserved), workloadOf("over", 0, 1, reserved, answerOf("Finished", "True", ""))},
			reason + " It is number 1 of 1 in this queue, which uses ClusterQueue vision; jobs of this queue that have quota: job-of-a, job-of-b.",
		},
		"behind many": {
			[]unstructured.Unstructured{workloadOf("w", 0, 10, waits), workloadOf("a", 0, 1, reserved), workloadOf("b", 0, 1, reserved), workloadOf("c", 0, 1, reserved), workloadOf("d", 0, 1, reserved)},
			reason + " It is number 1 of 1 in this queue, which uses ClusterQueue vision; jobs of this queue that have quota: job-of-a, job-of-b, job-of-c and 1 more.",
		},
		"evicted": {
			[]unstructured.Unstructured{requeued},
			reason + " It was evicted: Pending: Preempted to accommodate a workload (UID: 1). It is number 1 of 1 in this queue, which uses ClusterQueue vision. Kueue does not admit it before 2026-03-14T12:05:00Z.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			facts := pending(kinds()[job.KindMPIJob])
			facts.Job.Queue, facts.KueueServed, facts.Workloads = "main", true, tc.workloads
			facts.Queue.Value = conditioned("main", answerOf("Active", "True", ""))
			facts.Queue.Value.Object["spec"] = map[string]any{"clusterQueue": "vision"}
			facts.Workload.Value = &tc.workloads[0]
			findings := queue(facts)
			if len(findings) != 1 || findings[0].Cause != tc.want {
				t.Errorf("the findings are %+v, want the cause %q", findings, tc.want)
			}
		})
	}
}

func TestGates(t *testing.T) {
	gated := func(facts *Facts) {
		for _, i := range []int{1, 2} {
			facts.Pods.Value[i].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}}
		}
	}
	table(t, gates, pending, map[string]tableCase{
		"no gate":          {},
		"two pods":         {change: gated, want: []string{"likely: 2 pods may not be scheduled yet: kueue.x-k8s.io/topology"}, fix: "kubectl get pod job-worker-0 -n team"},
		"a job that fails": {change: all(gated, fails(training.FailureTraining, "x"))},
	})
}

func TestPodGroup(t *testing.T) {
	group := func(phase string, conditions ...any) func(*Facts) {
		return func(facts *Facts) {
			model := conditioned("job", conditions...)
			_ = unstructured.SetNestedField(model.Object, phase, "status", "phase")
			facts.PodGroups.Value = []unstructured.Unstructured{*model}
		}
	}
	const waits = "possible: The gang is waiting until all of its pods can be scheduled"
	table(t, podGroup, pending, map[string]tableCase{
		"no group":                    {},
		"a group that waits":          {change: group("Pending"), want: []string{waits}, fix: "kubectl describe podgroups"},
		"a native group that waits":   {change: group("", answerOf("PodGroupScheduled", "False", "no room")), want: []string{waits}},
		"a group that says nothing":   {change: group("")},
		"a group that is placed":      {change: group("Running")},
		"a job that has its nodes":    {change: all(group("Pending"), reach(training.StepScheduled))},
		"a job without pods":          {change: all(group("Pending"), withoutPods)},
		"groups that may not be read": {change: func(facts *Facts) { facts.PodGroups.Unknown = "may not list" }, want: []string{"not known: PodGroup"}},
	})
}

func event(kind, name, reason, message string, seconds int, count int32) corev1.Event {
	return corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: ago(seconds), Count: count,
	}
}

func happened(events ...corev1.Event) func(*Facts) {
	return func(facts *Facts) { facts.Events.Value = append(facts.Events.Value, events...) }
}

func TestEvents(t *testing.T) {
	normal := event("Pod", "job-worker-0", "Pulled", "it is there", 1, 1)
	normal.Type = corev1.EventTypeNormal
	series := event("Pod", "job-worker-0", "FailedMount", "no volume", 0, 0)
	series.Series = &corev1.EventSeries{Count: 7, LastObservedTime: metav1.MicroTime{Time: now}}
	table(t, events, pending, map[string]tableCase{
		"no event":                     {},
		"what is normal":               {change: happened(normal)},
		"a warning":                    {change: happened(event("Pod", "job-worker-0", "FailedMount", "no volume", 5, 1)), want: []string{"possible: Warning: FailedMount"}, fix: "kubectl describe pod job-worker-0 -n team"},
		"the same of two pods":         {change: happened(event("Pod", "job-worker-0", "FailedMount", "no volume", 5, 2), event("Pod", "job-worker-1", "FailedMount", "no volume", 4, 1)), want: []string{"possible: Warning: FailedMount (3 times)"}},
		"a series":                     {change: happened(series), want: []string{"possible: Warning: FailedMount (7 times)"}},
		"the newest first":             {change: happened(event("Pod", "a", "Old", "x", 9, 1), event("Pod", "b", "New", "y", 1, 1)), want: []string{"possible: Warning: New", "possible: Warning: Old"}},
		"pods that are refused":        {change: happened(event("Job", "job-launcher", "FailedCreate", "is forbidden", 5, 1)), want: []string{"likely: Warning: FailedCreate"}},
		"what another check explains":  {change: happened(event("Pod", "job-worker-0", "FailedScheduling", "no node", 5, 1)), want: []string{"note: Warning: FailedScheduling"}},
		"images of several pods":       {change: happened(event("MPIJob", "job", "ErrImagePull", "worker 0", 5, 1), event("MPIJob", "job", "ErrImagePull", "worker 1", 5, 1)), want: []string{"note: Warning: ErrImagePull (2 times)"}},
		"a job that runs":              {change: all(runs, happened(event("Pod", "job-worker-0", "Unhealthy", "x", 5, 1))), want: []string{"note: Warning: Unhealthy"}},
		"what was said of the failure": {change: all(fails(training.FailureWorker, "OOM"), happened(event("MPIJob", "job", "WorkerFailed", "WorkerFailed: OOM", 5, 1)))},
		"what follows from a failure": {change: all(fails(training.FailureTraining, "exit code 3"), func(facts *Facts) { facts.Previous.CompletionTime = new(ago(10)) },
			happened(event("Pod", "job-worker-0", "Unhealthy", "x", 11, 1), event("Pod", "job-worker-0", "FailedMount", "the Secret is gone", 5, 3)))},
		"what came before a failure": {change: all(fails(training.FailureTraining, "exit code 3"), func(facts *Facts) { facts.Previous.CompletionTime = new(ago(10)) },
			happened(event("Pod", "job-worker-0", "NodeNotReady", "x", 11, 1))), want: []string{"possible: Warning: NodeNotReady"}},
		"of six the newest five": {change: happened(event("Pod", "p", "A", "a", 1, 1), event("Pod", "p", "B", "b", 2, 1), event("Pod", "p", "C", "c", 3, 1), event("Pod", "p", "D", "d", 4, 1), event("Pod", "p", "E", "e", 5, 1), event("Pod", "p", "F", "f", 6, 1)),
			want: []string{"possible: Warning: A", "possible: Warning: B", "possible: Warning: C", "possible: Warning: D", "possible: Warning: E"}},
		"events that may not be listed": {change: func(facts *Facts) { facts.Events.Unknown = "may not list events" }, want: []string{"not known: Events"}},
		"a job that succeeded":          {change: all(succeeds, happened(event("Pod", "p", "A", "a", 1, 1)))},
	})
}

// Which events are about a job.
func TestIsAbout(t *testing.T) {
	for kind, model := range kinds() {
		facts := pending(model)
		with := func(kind, name string, uid types.UID, seconds int) *corev1.Event {
			model := event(kind, name, "R", "m", seconds, 1)
			model.InvolvedObject.UID = uid
			return &model
		}
		for name, test := range map[string]struct {
			event *corev1.Event
			want  bool
		}{
			"the job":                    {with(string(kind), "job", "uid", 5), true},
			"an earlier job":             {with(string(kind), "job", "other", 500), false},
			"its JobSet":                 {with("JobSet", "job", "x", 5), true},
			"its PodGroup":               {with("PodGroup", "job", "x", 5), true},
			"a Service of its name":      {with("Service", "job", "x", 5), false},
			"a worker":                   {with("Pod", "job-worker-0", "x", 5), true},
			"a launcher's Job":           {with("Job", "job-launcher", "x", 5), true},
			"an initializer":             {with("Pod", "job-initializer-abcde", "x", 5), true},
			"another job's":              {with("Pod", "job-2-worker-0", "x", 5), false},
			"one with a similar name":    {with("Pod", "job-workers", "x", 5), false},
			"a worker of an earlier job": {with("Pod", "job-worker-0", "x", 500), false},
		} {
			if got := facts.isAbout(test.event); got != test.want {
				t.Errorf("%s, %s: %v", kind, name, got)
			}
		}
	}
}
