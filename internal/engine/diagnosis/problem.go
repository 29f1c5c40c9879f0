package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// crashLoop is Kubernetes' word for a container that ends again and again.
const crashLoop = "CrashLoopBackOff"

// trouble is what is wrong with one pod.
type podProblem struct {
	pod *corev1.Pod
	// reason in one word, as Kubernetes has it.
	reason string
	// cause completes a sentence that begins with the pod; advice is one of its own.
	cause, advice string
	at            time.Time
	// ended: the pod will not run again by itself.
	ended bool
	// forGood: waiting does not help.
	final bool
	// exit is how a container ended, where that is what is wrong.
	exit      *corev1.ContainerStateTerminated
	container string
}

// troubleWith finds what is wrong with a pod; nil is nothing.
func problemOf(pod *corev1.Pod) *podProblem {
	ended, interrupted := terminationProblem(pod), disruptionProblem(pod)
	// Whoever takes a pod off its node ends its containers: what they then exit
	// with says nothing.
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

// failed is the trouble of a pod that has ended, other than well.
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
		// It never ran.
		return deletionProblem(pod)
	}
	problem.reason, problem.cause = "Failed", "failed: "+orElse(pod.Status.Message, "Kubernetes does not say why")
	problem.advice = describeAdvice(pod)
	return problem
}

// reasonDeleted is the trouble of a pod that somebody deleted.
const reasonDeleted = "Deleted"

// deletion is the trouble of a pod that somebody deletes.
func deletionProblem(pod *corev1.Pod) *podProblem {
	return &podProblem{
		pod: pod, reason: reasonDeleted, ended: true, at: deletedAt(pod),
		cause: "was deleted while the job ran", advice: "Start the job again.",
	}
}

// isAftermath tells whether it is its deletion that ended a pod. What runs out
// of memory, or is evicted, is not ended by being deleted. Of a container that had
// not begun when its pod was deleted the kubelet says an end without a time.
func (p *podProblem) isDueToDeletion() bool {
	return p.ended && p.reason != "OOMKilled" && p.pod.Status.Reason == "" && !hasCondition(p.pod, corev1.DisruptionTarget) &&
		(wasDeletedBy(p.pod, p.at) || p.pod.DeletionTimestamp != nil && p.at.IsZero())
}

// wasDeletedBy tells whether a pod was already being deleted at a time.
func wasDeletedBy(pod *corev1.Pod, at time.Time) bool {
	return pod.DeletionTimestamp != nil && at.Unix() >= deletedAt(pod).Unix()
}

func deletedAt(pod *corev1.Pod) time.Time {
	grace := int64(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	}
	return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}

// lostPlace explains a pod that Kubernetes ended, and not its own command.
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

// exited explains a container that ended with an error.
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

// disrupted is the trouble of a pod that is being taken away.
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

// Causes that Kubernetes reports for an image that cannot be pulled. Some pass.
var (
	imageCauses      = []string{"ImagePullBackOff", "ErrImagePull", "ImageInspectError", "RegistryUnavailable"}
	finalImageCauses = []string{"InvalidImageName", "ErrImageNeverPull"}
)

// IsImageCause tells whether a failureCause is about an image that cannot be pulled.
func IsImageCause(cause string) bool {
	return slices.Contains(imageCauses, cause) || slices.Contains(finalImageCauses, cause)
}

// waiting is the trouble of a container that cannot start.
func startProblem(pod *corev1.Pod, status *corev1.ContainerStatus) *podProblem {
	if crashed := status.State.Terminated; crashed != nil && crashed.ExitCode != 0 && status.RestartCount > 0 && pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		// Kubelet calls it a loop only at its next look, if that comes before the next
		// start.
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

// crashing explains a container that ends again and again, the last time as told.
func explainCrashLoop(pod *corev1.Pod, status *corev1.ContainerStatus, last *corev1.ContainerStateTerminated) (cause, advice string) {
	if last == nil {
		return "crashes repeatedly (CrashLoopBackOff)", logAdvice(pod, status.Name)
	}
	cause, advice = explainExit(pod, status.Name, last, "--previous")
	return fmt.Sprintf("%s, %d times so far (CrashLoopBackOff)", cause, status.RestartCount), advice
}

// stalledAt is when a container that cannot start could have: once its pod had a
// place, and what ran in the pod before had ended.
func stalledAt(pod *corev1.Pod) time.Time {
	stalled := scheduledAt(pod)
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if ended := lastEnd(&status); ended != nil && ended.FinishedAt.After(stalled) {
			stalled = ended.FinishedAt.Time
		}
	}
	return stalled
}

// lastEnd is how a container ended, now or the last time.
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

// endOf is when a pod ended, as far as it says.
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
