// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// onNodes gives pods a node, and has them run if they are ready.
func onNodes(ready bool, pods ...int) func(*Facts) {
	return func(facts *Facts) {
		for _, i := range pods {
			pod := &facts.Pods.Value[i]
			pod.Spec.NodeName = "a"
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(30)}}
			if ready {
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			}
		}
	}
}

func unschedulable(i int, message string) func(*Facts) {
	return func(facts *Facts) {
		facts.Pods.Value[i].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}
	}
}

func noPods(facts *Facts) { facts.Pods.Value = nil }

// inQueue has the job wait in the queue main, as the third, behind a job of a higher
// priority and an older one; another job has quota.
func inQueue(conditions ...any) func(*Facts) {
	return func(facts *Facts) {
		noPods(facts)
		facts.Job.Queue, facts.Job.Suspended, facts.KueueServed, facts.Previous.Suspended, facts.Previous.Queued = "main", true, true, true, true
		facts.Queue.Value = conditioned("main")
		facts.Queue.Value.Object["spec"] = map[string]any{"clusterQueue": "gpus"}
		own := workloadOf("own", 0, 10, conditions...)
		facts.Workload.Value = &own
		facts.Workloads = []unstructured.Unstructured{own, workloadOf("old", 0, 60), workloadOf("urgent", 9, 1), workloadOf("runs", 0, 90, answerOf("QuotaReserved", "True", ""))}
	}
}

func initializing(change ...func(*corev1.Pod)) func(*Facts) {
	return func(facts *Facts) {
		facts.Job.Initializer = nil
		pod := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job-initializer", Labels: plan.PodLabels(facts.Job, training.RoleInitializer), CreationTimestamp: ago(50)},
			Spec:       corev1.PodSpec{NodeName: "a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		for _, change := range change {
			change(&pod)
		}
		facts.Pods.Value = []corev1.Pod{pod}
	}
}

func pendingClaim(class *string, annotations map[string]string) func(*Facts) {
	return func(facts *Facts) {
		facts.Claims = map[string]Known[*corev1.PersistentVolumeClaim]{"data": {Value: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Annotations: annotations, CreationTimestamp: ago(40)},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
		}}}
	}
}

func bindingMode(class string, mode storagev1.VolumeBindingMode) func(*Facts) {
	return func(facts *Facts) { facts.BindingModes = map[string]storagev1.VolumeBindingMode{class: mode} }
}

func TestWaitingFor(t *testing.T) {
	allScheduled := onNodes(false, 0, 1, 2)
	workersReady := all(onNodes(false, 0), onNodes(true, 1, 2))
	gated := func(facts *Facts) {
		facts.Pods.Value[1].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/hold"}}
	}
	for name, test := range map[string]struct {
		change func(*Facts)
		want   WaitCause
		// message and remedy are parts of the answer, since is how many seconds ago it began.
		message, remedy, object string
		since                   int
	}{
		"no operator":   {change: func(facts *Facts) { facts.Previous.Phase = "" }, want: WaitOperator, message: "has not processed", remedy: "kubectl logs", object: "deployment/trireme-operator", since: 60},
		"a new job":     {change: func(facts *Facts) { facts.Previous.Phase, facts.Previous.Submitted = "", ago(5); noPods(facts) }, want: WaitUnknown, message: "The operator has not processed the job yet.", since: 5},
		"operator down": {change: func(facts *Facts) { facts.Deployment.Value.Status.ReadyReplicas = 0 }, want: WaitOperator, message: "None of its 2 replicas is ready"},
		"suspended by user": {change: all(noPods, func(facts *Facts) {
			facts.Previous.Suspended, facts.Job.Suspended = true, true
			facts.Conditions = []metav1.Condition{{Type: "Suspended", Status: "True", LastTransitionTime: ago(20)}}
		}), want: WaitSuspended, message: "The job is suspended", remedy: `"suspend":false`, since: 20},
		"no runtime":    {change: all(noPods, waits("RuntimeNotFound", "gone")), want: WaitBlocked, message: "RuntimeNotFound", remedy: "odh runtime list"},
		"no Kueue":      {change: all(inQueue(), func(facts *Facts) { facts.KueueServed = false }), want: WaitQueueUnmanaged, message: "Kueue is not installed", remedy: "install Kueue"},
		"no LocalQueue": {change: all(inQueue(), func(facts *Facts) { facts.Queue.Value = nil }), want: WaitQueueMissing, message: "Queue main is missing", remedy: "kubectl get localqueue", object: "localqueue/main"},
		"inactive queue": {change: all(inQueue(), func(facts *Facts) {
			facts.Queue.Value = conditioned("main", answerOf("Active", "False", "Can't submit new workloads to clusterQueue"))
		}), want: WaitQueueInactive, message: "Can't submit", remedy: "kubectl describe localqueue main"},
		"no Workload":       {change: all(inQueue(), func(facts *Facts) { facts.Workload.Value = nil }), want: WaitQueueUnmanaged, message: "created no Workload"},
		"deactivated":       {change: all(inQueue(), func(facts *Facts) { facts.Workload.Value.Object["spec"] = map[string]any{"active": false} }), want: WaitDeactivated, remedy: `"active":true`},
		"in a queue":        {change: inQueue(answerOf("QuotaReserved", "False", "insufficient unused quota for cpu in flavor default, 2 more needed")), want: WaitQueue, message: "2 more needed", remedy: "kubectl describe workload own", object: "workload/own"},
		"not tried yet":     {change: inQueue(), want: WaitQueue, message: "Kueue has not tried to admit it yet. It is number 3 of 3", remedy: "kubectl describe workload own", object: "workload/own", since: 10},
		"preempted":         {change: inQueue(answerOf("QuotaReserved", "False", "no room"), answerOf("Evicted", "True", "Preempted to accommodate a workload"), answerOf("Preempted", "True", "")), want: WaitPreempted, message: "Preempted to accommodate"},
		"evicted":           {change: inQueue(answerOf("QuotaReserved", "False", "no room"), answerOf("Evicted", "True", "Exceeded the PodsReady timeout")), want: WaitEvicted, message: "Exceeded the PodsReady timeout"},
		"quota refused":     {change: all(waits("WaitingForQuota", "x"), waitsForQuota("team")), want: WaitQuota, message: "exceeded quota", remedy: "kubectl describe resourcequota", object: "resourcequota/team", since: 10},
		"restart due":       {change: all(noPods, waits("Restarting", "x"), restarts), want: WaitRestart, message: "Worker 1 was OOMKilled", remedy: "--all"},
		"volume missing":    {change: func(facts *Facts) { facts.Claims = map[string]Known[*corev1.PersistentVolumeClaim]{"data": {}} }, want: WaitVolumeMissing, message: "data is missing", object: "persistentvolumeclaim/data"},
		"no volume":         {change: pendingClaim(nil, nil), want: WaitVolume, message: "no PersistentVolume matches it", remedy: "kubectl describe pvc data", since: 40},
		"immediate volume":  {change: all(pendingClaim(new("slow"), nil), bindingMode("slow", storagev1.VolumeBindingImmediate)), want: WaitVolume, message: "StorageClass slow has not provisioned it"},
		"volume for a node": {change: all(pendingClaim(new("local"), map[string]string{selectedNode: "a"}), bindingMode("local", storagev1.VolumeBindingWaitForFirstConsumer)), want: WaitVolume},
		"unbound, no nodes": {change: all(pendingClaim(new("local"), nil), bindingMode("local", storagev1.VolumeBindingWaitForFirstConsumer), unschedulable(1, "0/2 nodes are available")), want: WaitNodes, message: "0/2 nodes are available"},
		"unknown class":     {change: all(pendingClaim(new("local"), nil), inCluster()), want: WaitNodes},
		"gates":             {change: gated, want: WaitGates, message: "example.com/hold", object: "pod/job-worker-0", since: 50},
		"no node":           {change: all(onNodes(false, 0, 1), unschedulable(2, "0/2 nodes are available: 2 Insufficient nvidia.com/gpu")), want: WaitNodes, message: "2 of 3 pods are scheduled. Pod job-worker-1 has no node: 0/2 nodes are available", remedy: "kubectl describe pod job-worker-1", object: "pod/job-worker-1", since: 50},
		"no node, 1.37":     {change: all(onNodes(false, 0), unschedulable(1, "minCount (3) cannot be satisfied: 1 pod is unschedulable"), unschedulable(2, "0/2 nodes are available: 2 Insufficient cpu")), want: WaitNodes, message: "Pod job-worker-1 has no node: 0/2 nodes are available: 2 Insufficient cpu", object: "pod/job-worker-1"},
		"too few nodes":     {change: inCluster(node("a", cordoned)), want: WaitNodes, message: "0 of 1 node can run a worker", remedy: "kubectl uncordon"},
		"no scheduler":      {change: func(facts *Facts) { facts.Pods.Value[1].Spec.SchedulerName = "volcano" }, want: WaitNodes, message: "scheduler volcano has not reported why"},
		"image missing":     {change: all(allScheduled, waitsForImage(1, "x:1", "ErrImagePull")), want: WaitImageFailing, message: "cannot pull image x:1", remedy: "docker-registry", since: 30},
		"pulling": {change: all(allScheduled, waitsForImage(1, "", "ContainerCreating"), func(facts *Facts) {
			facts.Pulls = []corev1.Event{event("Pod", "job-worker-0", "Pulling", `Pulling image "big:1"`, 25, 1)}
		}), want: WaitImage, message: "pulling image big:1", since: 25},
		"no ConfigMap": {change: all(allScheduled, func(facts *Facts) {
			facts.Previous.WorkerPodStatuses = []training.WorkerPodStatus{{PodStatus: training.PodStatus{Name: "job-worker-0", Reason: "CreateContainerConfigError", Message: `configmap "x" not found`}}}
		}), want: WaitContainer, message: `configmap "x" not found`, remedy: "kubectl describe pod job-worker-0"},
		"initializer": {change: initializing(), want: WaitInitializer, message: "fetching the dataset", object: "pod/job-initializer"},
		"initializer fails": {change: initializing(func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "no bucket"}}}}
		}), want: WaitInitializer, message: "exit code 1 and is started again. no bucket", remedy: "--previous"},
		"initializer without node": {change: initializing(func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Status.Phase = "", corev1.PodPending }), want: WaitNodes, message: "0 of 1 pods are scheduled. Pod job-initializer"},
		"worker starts":            {change: all(allScheduled, onNodes(true, 1), reach(training.StepScheduled)), want: WaitWorkers, message: "1 of 2 workers are ready. Pod job-worker-1 on node a is not ready", since: 30},
		"launcher starts":          {change: workersReady, want: WaitWorkers, message: "2 of 2 workers are ready. Pod job-launcher on node a is starting"},
		"gate": {change: all(workersReady, func(facts *Facts) {
			facts.Previous.Phase = training.PhaseRunning
			facts.Pods.Value[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}), want: WaitGate, message: "has not reached all of them", remedy: "kubectl logs job-launcher"},
		"unexplained":      {change: all(noPods, waits("Waiting", "words")), want: WaitUnknown, message: "words."},
		"a job that runs":  {change: runs},
		"a finished job":   {change: succeeds},
		"a failed job":     {change: fails(training.FailureWorker, "OOMKilled")},
		"of mpi-operator":  {change: func(facts *Facts) { facts.OfMPIOperator = true }},
		"another operator": {change: func(facts *Facts) { facts.Job.ManagedBy = "x" }},
	} {
		for kind, model := range kinds() {
			t.Run(name+", "+string(kind), func(t *testing.T) {
				facts := pending(model, test.change)
				got := WaitingFor(facts, Diagnose(facts))
				if test.want == "" {
					if got != nil {
						t.Errorf("%+v", got)
					}
					return
				}
				if got == nil || got.Cause != test.want || !slices.Contains(waitOrder, got.Cause) {
					t.Fatalf("got %+v, want %s", got, test.want)
				}
				if !strings.Contains(got.Message, test.message) || !strings.Contains(got.Remedy, test.remedy) || test.object != "" && got.Object != test.object || got.Object == "" {
					t.Errorf("got %+v, want %+v", got, test)
				}
				if want := ago(test.since); test.since > 0 && !got.Since.Equal(&want) {
					t.Errorf("since %v, want %v", got.Since, want)
				}
			})
		}
	}
}

// What programs need is in fields, not only in texts.
func TestWaitingHasFields(t *testing.T) {
	for _, model := range kinds() {
		facts := pending(model, inQueue(answerOf("QuotaReserved", "False", "2 more needed")))
		own := facts.Workload.Value
		own.Object["status"].(map[string]any)["requeueState"] = map[string]any{"requeueAt": "2026-03-14T12:05:00Z"}
		got := WaitingFor(facts, Diagnose(facts))
		want := &QueueState{Name: "main", ClusterQueue: "gpus", Position: 3, Length: 3, Ahead: []string{"job-of-urgent", "job-of-old"}, Admitted: []string{"job-of-runs"}, Lacks: "2 more needed"}
		if diff := cmp.Diff(want, got.Queue); diff != "" {
			t.Errorf("the queue (-want +got):\n%s", diff)
		}
		if at := ago(-300); !got.MayStart.Equal(&at) {
			t.Errorf("it may start at %v", got.MayStart)
		}
	}
	for _, model := range kinds() {
		facts := pending(model, all(onNodes(false, 0), unschedulable(1, "optimistic rejection in PostFilter"), unschedulable(2, "2 Insufficient cpu")))
		got := WaitingFor(facts, Diagnose(facts))
		if diff := cmp.Diff(&GangState{Scheduled: 1, Pods: 3, Pod: "job-worker-1", Lacks: "2 Insufficient cpu"}, got.Gang); diff != "" {
			t.Errorf("the gang (-want +got):\n%s", diff)
		}
	}
	for _, model := range kinds() {
		facts := pending(model, all(noPods, waits("Restarting", "x"), restarts))
		if got := WaitingFor(facts, Diagnose(facts)); !got.MayStart.Equal(&facts.Previous.Restart.DueTime) {
			t.Errorf("it may start at %v", got.MayStart)
		}
	}
}
