package diagnosis

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// Pods as the scheduler, the kubelet and the controllers of Kubernetes leave
// them.

type podOption func(*corev1.Pod)

func together(options ...podOption) podOption {
	return func(pod *corev1.Pod) { change(pod, options) }
}

// setCondition replaces a condition of a pod.
func withCondition(kind corev1.PodConditionType, status corev1.ConditionStatus, second float64, reason, message string) podOption {
	return func(pod *corev1.Pod) {
		wanted := corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: stamp(second), Reason: reason, Message: message}
		if current := podCondition(pod, kind); current != nil {
			*current = wanted
			return
		}
		pod.Status.Conditions = append(pod.Status.Conditions, wanted)
	}
}

// onNode puts a pod where its number says.
func onNode(second float64) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = "node-launcher"
		if pod.Labels[training.LabelReplicaType] == training.RoleWorker {
			pod.Spec.NodeName = "node-" + pod.Spec.Hostname[strings.LastIndex(pod.Spec.Hostname, "-")+1:]
		}
		withCondition(corev1.PodScheduled, corev1.ConditionTrue, second, "", "")(pod)
	}
}

// withoutPlace is what a scheduler writes that finds none.
func withoutPlace(words string) podOption {
	return withCondition(corev1.PodScheduled, corev1.ConditionFalse, created, corev1.PodReasonUnschedulable, words)
}

const noGPUs = "0/8 nodes are available, 8 Insufficient nvidia.com/gpu"

// places is a pod with a node whose image is being pulled.
func places(pod *corev1.Pod) {
	change(pod, []podOption{onNode(placed), withCondition(corev1.PodReady, corev1.ConditionFalse, placed, "ContainersNotReady", "")})
	container(pod).State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
}

// starts is a pod that runs and is not ready.
func starts(pod *corev1.Pod) {
	places(pod)
	pod.Status.Phase = corev1.PodRunning
	container(pod).State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: stamp(placed + 1)}}
}

// runs is a pod that is ready.
func runs(pod *corev1.Pod) {
	starts(pod)
	withCondition(corev1.PodReady, corev1.ConditionTrue, ready, "", "")(pod)
}

// container is the status of a pod's container; the kubelet has one for each.
func container(pod *corev1.Pod) *corev1.ContainerStatus {
	if len(pod.Status.ContainerStatuses) == 0 {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image}}
	}
	return &pod.Status.ContainerStatuses[0]
}

func initContainer(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	if len(pod.Status.InitContainerStatuses) == 0 {
		pod.Spec.InitContainers = []corev1.Container{{Name: name}}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: name, Image: "registry.example.com/agent:1"}}
	}
	return &pod.Status.InitContainerStatuses[0]
}

func terminated(code int32, reason, message string, second float64) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: stamp(placed + 1), FinishedAt: stamp(second),
	}}
}

// exits is a pod whose container has ended, and which has noticed.
func exits(code int32, reason, message string, second float64) podOption {
	return func(pod *corev1.Pod) {
		exitsFirst(code, reason, message, second)(pod)
		pod.Status.Phase = corev1.PodFailed
		if code == 0 {
			pod.Status.Phase = corev1.PodSucceeded
		}
	}
}

// exitsFirst is a pod whose container has ended, a moment before its own phase
// says so.
func exitsFirst(code int32, reason, message string, second float64) podOption {
	return func(pod *corev1.Pod) {
		container(pod).State = terminated(code, reason, message, second)
		withCondition(corev1.PodReady, corev1.ConditionFalse, second, "ContainersNotReady", "")(pod)
	}
}

// withoutTime is a pod whose container has ended, nobody says when.
func withoutTime(pod *corev1.Pod) { container(pod).State.Terminated.FinishedAt.Reset() }

// neverRan is a pod that its kubelet gave up before any container began.
func neverRan(pod *corev1.Pod) {
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodFailed, nil
	withCondition(corev1.PodReady, corev1.ConditionFalse, placed, "ContainersNotReady", "")(pod)
}

func outOfMemory(second float64) podOption { return exits(137, "OOMKilled", "", second) }

// restarts is a pod whose container has ended and runs again.
func restarted(code int32, message string, times int32, second float64) podOption {
	return func(pod *corev1.Pod) {
		status := container(pod)
		status.LastTerminationState, status.RestartCount = terminated(code, "Error", message, second), times
		status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: stamp(second + 1)}}
	}
}

// crashes is a pod whose container ends again and again.
func crashes(code int32, times int32, second float64) podOption {
	return func(pod *corev1.Pod) {
		restarted(code, "", times, second)(pod)
		waits("CrashLoopBackOff", "back-off 20s restarting failed container")(pod)
	}
}

// waits is a pod whose container cannot start.
func waits(reason, message string) podOption {
	return func(pod *corev1.Pod) {
		container(pod).State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		withCondition(corev1.PodReady, corev1.ConditionFalse, placed, "ContainersNotReady", "")(pod)
	}
}

// initExits is a pod one of whose init containers has ended with an error.
func initExits(name string, code int32, reason, message string, second float64) podOption {
	return func(pod *corev1.Pod) {
		initContainer(pod, name).State = terminated(code, reason, message, second)
		pod.Status.ContainerStatuses = nil
		pod.Status.Phase = corev1.PodFailed
		withCondition(corev1.PodReady, corev1.ConditionFalse, second, "PodFailed", "")(pod)
	}
}

func gateExits(code int32, reason, message string, second float64) podOption {
	return initExits(plan.GateContainer, code, reason, message, second)
}

// endedByNode is a pod that its kubelet ended. The kubelet writes the phase
// first and the end of the containers later.
func endedByNode(reason, message string, second float64) podOption {
	return func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, reason, message
		withCondition(corev1.PodReady, corev1.ConditionFalse, second, "PodFailed", "")(pod)
	}
}

// interrupted is a pod that somebody is about to take off its node.
func interrupted(reason, message string, second float64) podOption {
	return withCondition(corev1.DisruptionTarget, corev1.ConditionTrue, second, reason, message)
}

// graceful is the usual time between a pod's deletion and its end.
const graceful = 30

// deleted is a pod that somebody deletes.
func deleted(second float64) podOption {
	return func(pod *corev1.Pod) {
		grace := int64(graceful)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: at(second).Add(graceful * time.Second)}, &grace
	}
}

func createdAt(second float64) podOption {
	return func(pod *corev1.Pod) { pod.CreationTimestamp = stamp(second) }
}

func named(name string) podOption { return func(pod *corev1.Pod) { pod.Name = name } }

func withHost(name string) podOption { return func(pod *corev1.Pod) { pod.Spec.Hostname = name } }

// ofRestart is a pod that was created for another restart.
func ofRestart(number string) podOption {
	return func(pod *corev1.Pod) { pod.Labels[training.LabelRestart] = number }
}
