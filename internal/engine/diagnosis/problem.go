// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// crashLoop is the kubelet's reason for a container that crashes repeatedly.
const crashLoop = "CrashLoopBackOff"

// podProblem is what is wrong with one pod.
type podProblem struct {
	pod *corev1.Pod
	// reason is a CamelCase word, where possible Kubernetes' own.
	reason string
	// cause completes a sentence that begins with the pod; advice is a sentence.
	cause, advice string
	at            time.Time
	// ended: the pod has terminated and will not be restarted by the kubelet.
	ended bool
	// final: the problem does not resolve by itself.
	final bool
	// exit is the termination of the container that is the problem, if there is one.
	exit      *corev1.ContainerStateTerminated
	container string
}

// problemOf is the problem of a pod; nil if there is none.
func problemOf(pod *corev1.Pod) *podProblem {
	ended, interrupted := terminationProblem(pod), disruptionProblem(pod)
	// A disruption terminates the pod's containers, so their exit codes are not the cause.
	if interrupted != nil && (ended == nil || pod.Status.Reason == "" && (ended.exit == nil || ended.at.Unix() >= interrupted.at.Unix())) {
		return interrupted
	}
	if ended != nil {
		return ended
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if problem := startProblem(pod, &status); problem != nil {
			return problem
		}
	}
	return nil
}

// terminationProblem is the problem of a pod that has failed.
func terminationProblem(pod *corev1.Pod) *podProblem {
	main := mainStatus(pod)
	mainFailed := main != nil && main.State.Terminated != nil && main.State.Terminated.ExitCode != 0 && pod.Spec.RestartPolicy == corev1.RestartPolicyNever
	if pod.Status.Phase != corev1.PodFailed && !mainFailed {
		return nil
	}
	problem := &podProblem{pod: pod, ended: true, at: endOf(pod)}
	if pod.Status.Reason != "" {
		problem.reason = pod.Status.Reason
		problem.cause, problem.advice = explainPodReason(pod)
		return problem
	}
	for _, status := range containerStatuses(pod) {
		if ended := status.State.Terminated; ended != nil && ended.ExitCode != 0 {
			problem.at, problem.exit, problem.container = ended.FinishedAt.Time, ended, status.Name
			problem.reason = ended.Reason
			problem.cause, problem.advice = explainExit(pod, status.Name, ended)
			return problem
		}
	}
	if pod.DeletionTimestamp != nil && pod.Status.Message == "" {
		// The pod was deleted before it ran.
		return deletionProblem(pod)
	}
	problem.reason, problem.cause = "Failed", "failed: "+orElse(pod.Status.Message, "Kubernetes does not say why")
	problem.advice = describeAdvice(pod)
	return problem
}

// reasonDeleted is the reason of the problem of a deleted pod.
const reasonDeleted = "Deleted"

// deletionProblem is the problem of a pod that a user or a controller deletes.
func deletionProblem(pod *corev1.Pod) *podProblem {
	return &podProblem{
		pod: pod, reason: reasonDeleted, ended: true, at: deletedAt(pod),
		cause: "was deleted while the job ran", advice: "Start the job again.",
	}
}

// isDueToDeletion reports whether the pod terminated because it was deleted, and not
// because it was evicted or out of memory. The kubelet reports no finish time for a
// container that had not started when its pod was deleted.
func (p *podProblem) isDueToDeletion() bool {
	return p.ended && p.reason != "OOMKilled" && p.pod.Status.Reason == "" && !hasCondition(p.pod, corev1.DisruptionTarget) &&
		(wasDeletedBy(p.pod, p.at) || p.pod.DeletionTimestamp != nil && p.at.IsZero())
}

// wasDeletedBy reports whether the pod's deletion had been requested by that time.
func wasDeletedBy(pod *corev1.Pod, at time.Time) bool {
	return pod.DeletionTimestamp != nil && at.Unix() >= deletedAt(pod).Unix()
}

// deletedAt is when the deletion was requested. The deletion timestamp is later, by the
// grace period.
func deletedAt(pod *corev1.Pod) time.Time {
	grace := int64(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	}
	return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}

// explainPodReason explains a pod that Kubernetes has terminated, by the pod's reason.
func explainPodReason(pod *corev1.Pod) (cause, advice string) {
	message := strings.TrimSpace(pod.Status.Message)
	switch pod.Status.Reason {
	case "Evicted":
		return "was evicted from its node: " + message,
			"Set its requests as high as its limits, including ephemeral-storage, so that the node is not overcommitted."
	case "DeadlineExceeded":
		return "ran for longer than its pod's activeDeadlineSeconds", "Raise or remove it in the pod template."
	case "NodeLost", "NodeShutdown", "Terminated":
		return "lost its node: " + orElse(message, pod.Status.Reason), "Start the job again when the node is back or other nodes have room."
	case "Preempting":
		return "was preempted on its node: " + message, "Start the job again when the node has room."
	default:
		cause = strings.TrimSpace(fmt.Sprintf("was refused by its node: %s %s", pod.Status.Reason, message))
		if pod.Spec.NodeName == "" {
			return cause, describeAdvice(pod)
		}
		return cause, fmt.Sprintf("See kubectl describe node %s.", pod.Spec.NodeName)
	}
}

// explainExit explains a container that terminated with an error.
func explainExit(pod *corev1.Pod, name string, ended *corev1.ContainerStateTerminated, logFlags ...string) (cause, advice string) {
	container := ""
	if len(pod.Spec.Containers) == 0 || name != pod.Spec.Containers[0].Name {
		container = fmt.Sprintf(" in its container %s", name)
	}
	switch {
	case ended.Reason == "OOMKilled":
		limit := ""
		if memory := memoryLimit(pod, name); memory != "" {
			limit = " of " + memory
		}
		return fmt.Sprintf("exceeded its memory limit%s and was killed%s (OOMKilled, exit code %d)", limit, container, ended.ExitCode),
			memoryAdvice(pod, name, logFlags...)
	case ended.Reason == "StartError" || ended.Reason == "ContainerCannotRun":
		return fmt.Sprintf("could not be started%s: %s", container, strings.TrimSpace(ended.Message)),
			startAdvice(pod, ended.Message)
	case isExitUnknown(ended):
		return fmt.Sprintf("terminated%s while the container runtime of its node was not running; its exit code is not known (%s, exit code %d)", container, ended.Reason, ended.ExitCode),
			logAdvice(pod, name, logFlags...)
	case ended.ExitCode > 128 && ended.ExitCode < 160:
		return fmt.Sprintf("was killed by signal %d%s (exit code %d)", ended.ExitCode-128, container, ended.ExitCode), logAdvice(pod, name, logFlags...)
	default:
		return fmt.Sprintf("exited with code %d%s", ended.ExitCode, container), logAdvice(pod, name, logFlags...)
	}
}

func logAdvice(pod *corev1.Pod, container string, flags ...string) string {
	return "See its log: " + logCommand(pod, container, flags...) + "."
}

func logCommand(pod *corev1.Pod, container string, flags ...string) string {
	command := append([]string{"kubectl", "logs"}, flags...)
	return strings.Join(append(command, pod.Name, "-c", container, "-n", pod.Namespace), " ")
}

func describeAdvice(pod *corev1.Pod) string {
	return fmt.Sprintf("See kubectl describe pod %s -n %s.", pod.Name, pod.Namespace)
}

func memoryAdvice(pod *corev1.Pod, container string, logFlags ...string) string {
	switch pod.Labels[training.LabelReplicaType] {
	case training.RoleWorker:
		return "Raise the memory limit of the workers, or reduce the batch size or the slots per worker."
	case training.RoleInitializer:
		return logAdvice(pod, container, logFlags...)
	}
	return "Raise the memory limit of the launcher."
}

func memoryLimit(pod *corev1.Pod, name string) string {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if limit, found := containers[i].Resources.Limits[corev1.ResourceMemory]; found && containers[i].Name == name {
				return limit.String()
			}
		}
	}
	return ""
}

// disruptionProblem is the problem of a pod that is preempted, evicted or removed from
// its node.
func disruptionProblem(pod *corev1.Pod) *podProblem {
	interruption := podCondition(pod, corev1.DisruptionTarget)
	if interruption == nil || interruption.Status != corev1.ConditionTrue {
		return nil
	}
	problem := &podProblem{pod: pod, reason: interruption.Reason, at: interruption.LastTransitionTime.Time, ended: true}
	problem.cause = "is being removed from its node: " + interruption.Message
	problem.advice = "Start the job again."
	switch interruption.Reason {
	case "PreemptionByScheduler":
		problem.advice = "Give the job a higher priority class, or start it again when there is room."
	case "DeletionByTaintManager":
		problem.advice = "Its node has a taint that the job does not tolerate, or is lost. Start the job again."
	case "EvictionByEvictionAPI":
		problem.advice = "Its node is being drained. Start the job again."
	}
	return problem
}

// Causes that Kubernetes reports for an image that cannot be pulled. The final ones do
// not resolve by themselves.
var (
	imageCauses      = []string{"ImagePullBackOff", "ErrImagePull", "ImageInspectError", "RegistryUnavailable"}
	finalImageCauses = []string{"InvalidImageName", "ErrImageNeverPull"}
)

// IsImageCause reports whether a failureCause is about an image that cannot be pulled.
func IsImageCause(cause string) bool {
	return slices.Contains(imageCauses, cause) || slices.Contains(finalImageCauses, cause)
}

// startProblem is the problem of a container that cannot start; nil if it has none.
func startProblem(pod *corev1.Pod, status *corev1.ContainerStatus) *podProblem {
	if crashed := status.State.Terminated; crashed != nil && crashed.ExitCode != 0 && status.RestartCount > 0 && pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		// The kubelet sets CrashLoopBackOff only later, and not at all if it restarts the
		// container before that.
		problem := &podProblem{pod: pod, reason: crashLoop, at: stalledAt(pod), container: status.Name, exit: crashed}
		problem.cause, problem.advice = explainCrashLoop(pod, status, crashed)
		return problem
	}
	state := status.State.Waiting
	if state == nil {
		return nil
	}
	problem := &podProblem{pod: pod, reason: state.Reason, at: stalledAt(pod), container: status.Name}
	switch {
	case slices.Contains(imageCauses, state.Reason):
		problem.cause = fmt.Sprintf("cannot pull its image %s: %s", status.Image, strings.TrimSpace(state.Message))
		problem.advice = "Check the image's name and tag, that the node reaches the registry, and imagePullSecrets."
	case slices.Contains(finalImageCauses, state.Reason):
		problem.final = true
		problem.cause = fmt.Sprintf("cannot pull its image %s: %s", status.Image, strings.TrimSpace(state.Message))
		problem.advice = "Correct the image's name, or its imagePullPolicy."
	case slices.Contains([]string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}, state.Reason):
		problem.cause = "cannot be started: " + strings.TrimSpace(state.Message)
		problem.advice = startAdvice(pod, state.Message)
	case state.Reason == crashLoop:
		problem.exit = status.LastTerminationState.Terminated
		problem.cause, problem.advice = explainCrashLoop(pod, status, problem.exit)
	default:
		return nil
	}
	return problem
}

// explainCrashLoop explains a container that crashes repeatedly, by its last
// termination.
func explainCrashLoop(pod *corev1.Pod, status *corev1.ContainerStatus, last *corev1.ContainerStateTerminated) (cause, advice string) {
	if last == nil {
		return "crashes repeatedly (CrashLoopBackOff)", logAdvice(pod, status.Name)
	}
	cause, advice = explainExit(pod, status.Name, last, "--previous")
	return fmt.Sprintf("%s, %d times so far (CrashLoopBackOff)", cause, status.RestartCount), advice
}

// stalledAt is when a container that cannot start should have started: after its pod
// was scheduled and the containers before it had terminated.
func stalledAt(pod *corev1.Pod) time.Time {
	stalled := scheduledAt(pod)
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if ended := lastEnd(&status); ended != nil && ended.FinishedAt.After(stalled) {
			stalled = ended.FinishedAt.Time
		}
	}
	return stalled
}

// lastEnd is the latest termination of a container; nil if there is none.
func lastEnd(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if status.State.Terminated != nil {
		return status.State.Terminated
	}
	return status.LastTerminationState.Terminated
}

func scheduledAt(pod *corev1.Pod) time.Time {
	if scheduled := podCondition(pod, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionTrue {
		return scheduled.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// endOf is when a pod terminated, as far as its status shows it.
func endOf(pod *corev1.Pod) time.Time {
	var end time.Time
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil && ended.FinishedAt.After(end) {
			end = ended.FinishedAt.Time
		}
	}
	if ready := podCondition(pod, corev1.PodReady); end.IsZero() && ready != nil {
		end = ready.LastTransitionTime.Time
	}
	return end
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
