// SPDX-License-Identifier: Apache-2.0

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

// withCondition sets a condition of a pod.
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

// onNode schedules a pod to the node with its index.
func onNode(second float64) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = "node-launcher"
		if pod.Labels[training.LabelReplicaType] == training.RoleWorker {
			pod.Spec.NodeName = "node-" + pod.Spec.Hostname[strings.LastIndex(pod.Spec.Hostname, "-")+1:]
		}
		withCondition(corev1.PodScheduled, corev1.ConditionTrue, second, "", "")(pod)
	}
}

// unschedulable is a pod that the scheduler found no node for.
func unschedulable(message string) podOption {
	return withCondition(corev1.PodScheduled, corev1.ConditionFalse, created, corev1.PodReasonUnschedulable, message)
}

const noGPUs = "0/8 nodes are available, 8 Insufficient nvidia.com/gpu"

// pullsImage is a scheduled pod whose image is being pulled.
func pullsImage(pod *corev1.Pod) {
	change(pod, []podOption{onNode(scheduled), withCondition(corev1.PodReady, corev1.ConditionFalse, scheduled, "ContainersNotReady", "")})
	container(pod).State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
}

// starts is a running pod that is not ready.
func starts(pod *corev1.Pod) {
	pullsImage(pod)
	pod.Status.Phase = corev1.PodRunning
	container(pod).State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: stamp(scheduled + 1)}}
}

// runs is a running and ready pod.
func runs(pod *corev1.Pod) {
	starts(pod)
	withCondition(corev1.PodReady, corev1.ConditionTrue, ready, "", "")(pod)
}

// container is the status of a pod's main container.
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
		ExitCode: code, Reason: reason, Message: message, StartedAt: stamp(scheduled + 1), FinishedAt: stamp(second),
	}}
}

// exits is a pod whose container has terminated, and whose phase shows it.
func exits(code int32, reason, message string, second float64) podOption {
	return func(pod *corev1.Pod) {
		exitsFirst(code, reason, message, second)(pod)
		pod.Status.Phase = corev1.PodFailed
		if code == 0 {
			pod.Status.Phase = corev1.PodSucceeded
		}
	}
}

// exitsFirst is a pod whose container has terminated, but whose phase does not show it
// yet.
func exitsFirst(code int32, reason, message string, second float64) podOption {
	return func(pod *corev1.Pod) {
		container(pod).State = terminated(code, reason, message, second)
		withCondition(corev1.PodReady, corev1.ConditionFalse, second, "ContainersNotReady", "")(pod)
	}
}

// withoutFinishTime is a pod whose container has terminated at an unknown time.
func withoutFinishTime(pod *corev1.Pod) { container(pod).State.Terminated.FinishedAt.Reset() }

// neverRan is a pod that failed before any container started.
func neverRan(pod *corev1.Pod) {
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodFailed, nil
	withCondition(corev1.PodReady, corev1.ConditionFalse, scheduled, "ContainersNotReady", "")(pod)
}

func outOfMemory(second float64) podOption { return exits(137, "OOMKilled", "", second) }

// restarted is a pod whose container was restarted by the kubelet and is running.
func restarted(code int32, message string, times int32, second float64) podOption {
	return func(pod *corev1.Pod) {
		status := container(pod)
		status.LastTerminationState, status.RestartCount = terminated(code, "Error", message, second), times
		status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: stamp(second + 1)}}
	}
}

// crashes is a pod whose container crashes repeatedly.
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
		withCondition(corev1.PodReady, corev1.ConditionFalse, scheduled, "ContainersNotReady", "")(pod)
	}
}

// initExits is a pod with an init container that has failed.
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

// terminatedByNode is a pod that its kubelet has terminated. The kubelet updates the
// phase before the statuses of the containers.
func terminatedByNode(reason, message string, second float64) podOption {
	return func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, reason, message
		withCondition(corev1.PodReady, corev1.ConditionFalse, second, "PodFailed", "")(pod)
	}
}

// disrupted is a pod that is about to be preempted or evicted.
func disrupted(reason, message string, second float64) podOption {
	return withCondition(corev1.DisruptionTarget, corev1.ConditionTrue, second, reason, message)
}

// gracePeriod is Kubernetes' default, in seconds.
const gracePeriod = 30

// deleted is a pod that is being deleted since this second.
func deleted(second float64) podOption {
	return func(pod *corev1.Pod) {
		grace := int64(gracePeriod)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: at(second).Add(gracePeriod * time.Second)}, &grace
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
