// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// eventKind is the field by which events are listed.
var eventKind = struct {
	object client.Object
	field  string
	of     func(client.Object) []string
}{&corev1.Event{}, "involvedObject.kind", func(object client.Object) []string { return []string{object.(*corev1.Event).InvolvedObject.Kind} }}

// runtimeNamed is a runtime of the cluster with small requests of the launcher.
func runtimeNamed(name string) *v2alpha1.ClusterTrainingRuntime {
	template := func(role, cpu string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: role, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi")}},
		}}}}
	}
	return &v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{NumNodes: new(int32(2)), MPIImplementation: v2alpha1.MPIImplementationOpenMPI, SlotsPerWorker: new(int32(4))},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: template("launcher", "500m")}, {Name: v2alpha1.ReplicatedJobWorker, Template: template("worker", "4")},
		}}},
	}}
}

// trainJobNamed is a TrainJob that was created a while ago.
func trainJobNamed(name string, change ...func(*v2alpha1.TrainJob)) *v2alpha1.TrainJob {
	trainJob := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: ago(600), Annotations: map[string]string{training.AnnotationCreatedBy: "alice"}},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "mpi-openmpi-cpu"},
			Trainer:    v2alpha1.Trainer{Image: "quay.io/team/train:7", NumNodes: new(int32(3)), Command: []string{"python", "train.py"}},
		},
	}
	for _, change := range change {
		change(trainJob)
	}
	return trainJob
}

// mpiJobNamed is an MPIJob with a GPU for each worker.
func mpiJobNamed(name string, change ...func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
	pod := func(container corev1.Container) corev1.PodTemplateSpec {
		container.Image = "quay.io/team/hpc:2"
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}
	}
	mpiJob := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: ago(90)},
		Spec: v2beta1.MPIJobSpec{MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Template: pod(corev1.Container{Name: "launcher", Command: []string{"mpirun", "./solve"}})},
			v2beta1.MPIReplicaTypeWorker: {Replicas: new(int32(2)), Template: pod(corev1.Container{Name: "worker", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}, Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
			}})},
		}},
	}
	for _, change := range change {
		change(mpiJob)
	}
	return mpiJob
}

// timeline returns steps, each reached the given number of seconds ago.
func timeline(steps ...any) (entries []training.TimelineEntry) {
	for i := 0; i < len(steps); i += 2 {
		entries = append(entries, training.TimelineEntry{Step: steps[i].(training.TimelineStep), Time: ago(steps[i+1].(int))})
	}
	return entries
}

// workersOf returns equal states of all workers of a job.
func workersOf(name string, count int, phase string) (statuses []training.WorkerPodStatus) {
	for i := range count {
		statuses = append(statuses, training.WorkerPodStatus{Index: int32(i), PodStatus: training.PodStatus{Name: fmt.Sprintf("%s-worker-%d", name, i), Node: fmt.Sprintf("node-%d", i+1), Phase: phase}})
	}
	return statuses
}

func condition(question, reason, message string, status metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: question, Reason: reason, Message: message, Status: status, LastTransitionTime: ago(60)}
}

func running(trainJob *v2alpha1.TrainJob) {
	trainJob.Status = v2alpha1.TrainJobStatus{StartTime: new(ago(500)), RuntimeDigest: "sha256:" + strings.Repeat("0123456789abcdef", 4), Progress: training.Progress{
		Phase: training.PhaseRunning, ReadyWorkers: "3/3", ReadyWorkerCount: 3, WorkerCount: 3, WorkerPodStatuses: workersOf(trainJob.Name, 3, "Running"),
		LauncherPodStatus: &training.PodStatus{Name: trainJob.Name + "-launcher", Node: "node-1", Phase: "Running"},
		Timeline: timeline(training.StepSubmitted, 600, training.StepAdmitted, 540, training.StepScheduled, 500, training.StepPodsReady, 480,
			training.StepWorkersReached, 479, training.StepFirstRankUp, 478),
	}, Conditions: []metav1.Condition{condition(v2alpha1.ConditionTrainingComplete, "Running", "Launcher and workers run", metav1.ConditionFalse)}}
}

func waiting(trainJob *v2alpha1.TrainJob) {
	trainJob.Status = v2alpha1.TrainJobStatus{Progress: training.Progress{
		Phase: training.PhasePending, ReadyWorkers: "0/3", ReadyWorkerCount: 0, WorkerCount: 3, Timeline: timeline(training.StepSubmitted, 600, training.StepAdmitted, 599),
		WorkerPodStatuses: []training.WorkerPodStatus{{Index: 0, PodStatus: training.PodStatus{Name: trainJob.Name + "-worker-0", Phase: "Pending", Reason: "Unschedulable"}}},
	}, Conditions: []metav1.Condition{condition(v2alpha1.ConditionTrainingComplete, "Unschedulable",
		"1 of 4 pods placed; scheduler: 0/8 nodes are available, 8 Insufficient nvidia.com/gpu", metav1.ConditionFalse)}}
}

// restarting is a job that waits for its second restart.
func restarting(trainJob *v2alpha1.TrainJob) {
	waiting(trainJob)
	trainJob.Spec.BackoffLimit = new(int32(3))
	trainJob.Status.WorkerPodStatuses = nil
	trainJob.Status.Restart = &training.Restart{
		Count: 2, Reason: training.FailureWorker, DueTime: ago(-15),
		Message: "Worker 1 (pod again-worker-0-1-r1 on node node-2) exceeded its memory limit of 16Gi (OOMKilled, exit code 137).\nRaise the memory limit or reduce the batch size.",
	}
	trainJob.Status.Conditions[0].Reason, trainJob.Status.Conditions[0].Message = "Restarting", "Restart 2 of 3 is due after a failure: "+trainJob.Status.Restart.Message
}

// restarted is a job that runs after a restart.
func restarted(trainJob *v2alpha1.TrainJob) {
	running(trainJob)
	trainJob.Spec.BackoffLimit = new(int32(3))
	trainJob.Status.Restart = &training.Restart{Count: 1, Reason: training.FailureLauncher, Message: "The launcher exited with code 1.", DueTime: ago(550)}
}

// overQuota is a job with a pod that exceeds the quota.
func overQuota(mpiJob *v2beta1.MPIJob) {
	mpiJob.Status = v2beta1.MPIJobStatus{Progress: training.Progress{
		Phase: training.PhasePending, ReadyWorkers: "0/2", ReadyWorkerCount: 0, WorkerCount: 2, Timeline: timeline(training.StepSubmitted, 90, training.StepAdmitted, 90),
		QuotaWait: &training.QuotaWait{Name: "team", Since: ago(20), Message: `Pod greedy-worker-1 could not be created: exceeded quota: team, requested: requests.cpu=8, used: requests.cpu=12, limited: requests.cpu=16`},
	}}
}

func queued(trainJob *v2alpha1.TrainJob) {
	trainJob.Labels = map[string]string{training.LabelQueue: "team-a"}
	trainJob.Status = v2alpha1.TrainJobStatus{Progress: training.Progress{Phase: training.PhasePending, Timeline: timeline(training.StepSubmitted, 600)},
		Conditions: []metav1.Condition{condition(v2alpha1.ConditionSuspended, "Queued", "Kueue holds the job in queue team-a", metav1.ConditionTrue)}}
}

func succeeded(trainJob *v2alpha1.TrainJob) {
	running(trainJob)
	trainJob.Status.Phase, trainJob.Status.CompletionTime, trainJob.Status.Duration = training.PhaseSucceeded, new(ago(100)), "6m40s"
	trainJob.Status.Timeline = append(trainJob.Status.Timeline, timeline(training.StepFinished, 100)...)
	trainJob.Status.LauncherPodStatus.Phase = "Succeeded"
}

func failed(mpiJob *v2beta1.MPIJob) {
	mpiJob.Status = v2beta1.MPIJobStatus{StartTime: new(ago(80)), CompletionTime: new(ago(20)), Progress: training.Progress{
		Phase: training.PhaseFailed, ReadyWorkers: "1/2", ReadyWorkerCount: 1, WorkerCount: 2, FailureReason: training.FailureWorker,
		FailureMessage: "Worker 1 (pod solve-worker-1 on node node-2) used more memory than its limit of 16Gi and was killed (OOMKilled, exit code 137).\n" +
			"Give workers more memory, or let them need less: smaller batches, fewer slots per worker.",
		LauncherPodStatus: &training.PodStatus{Name: mpiJob.Name + "-launcher", Node: "node-1", Phase: "Failed"}, WorkerPodStatuses: workersOf(mpiJob.Name, 2, "Running"),
		Timeline: timeline(training.StepSubmitted, 90, training.StepAdmitted, 90, training.StepScheduled, 80, training.StepPodsReady, 75, training.StepFinished, 20),
	}}
	mpiJob.Status.WorkerPodStatuses[1].Phase, mpiJob.Status.WorkerPodStatuses[1].Reason = "Failed", "OOMKilled"
}

// raised is a job with a rank that raised an exception.
func raised(mpiJob *v2beta1.MPIJob) {
	failed(mpiJob)
	mpiJob.Status.WorkerPodStatuses = workersOf(mpiJob.Name, 2, "Running")
	mpiJob.Status.FailureReason = training.FailureTraining
	mpiJob.Status.FailureMessage = "Rank 3 on worker 1 (pod raised-worker-1 on node node-2) exited with code 1: RuntimeError: dataset /data/train is empty. " +
		"The launcher's log says more: kubectl logs raised-launcher -c main -n default."
	mpiJob.Status.FailedProcess = &training.FailedProcess{
		Rank: new(int32(3)), Host: "raised-worker-1", ExitCode: new(int32(1)), Error: "RuntimeError: dataset /data/train is empty",
		LastLines: []string{`File "/workspace/train.py", line 8, in load`, "RuntimeError: dataset /data/train is empty"},
	}
}

// eventOf is an event of an object.
func eventOf(kind, name, reason, message string, seconds int) *corev1.Event {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name + "." + reason},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "default", Name: name, UID: types.UID(name + "-uid")},
		Reason:         reason, Message: message, LastTimestamp: ago(seconds), Type: corev1.EventTypeNormal, Count: 1,
	}
	if kind == "Pod" {
		event.Type, event.Count = corev1.EventTypeWarning, 3
	}
	return event
}

// podOf is a pod of a job.
func podOf(jobType, job, role, name, node string, restarts int32) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{
			training.LabelJobName: job, training.LabelJobType: jobType, training.LabelReplicaType: role,
			training.LabelJobRole: role, training.LabelOperatorName: training.OperatorNameMPI,
		}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: role, Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: role, RestartCount: restarts}}},
	}
}
