// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
)

// selectedNode is set on a PVC whose volume is provisioned for a pod's node.
const selectedNode = "volume.kubernetes.io/selected-node"

// waitForVolume finds a PVC that keeps pods from being scheduled because it has no
// volume.
func waitForVolume(facts *Facts, findings []Finding) *Waiting {
	if facts.reached(training.StepScheduled) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(facts.Claims)) {
		claim := facts.Claims[name].Value
		if claim == nil || claim.Status.Phase != corev1.ClaimPending || !facts.lacksVolume(claim, findings) {
			continue
		}
		text := "No StorageClass provisions it, and no PersistentVolume matches it"
		if class := classOf(claim); class != "" {
			text = "StorageClass " + class + " has not provisioned it"
		}
		return &Waiting{
			Cause: WaitVolume, Since: &claim.CreationTimestamp, Object: "persistentvolumeclaim/" + name,
			Message: sentences("PersistentVolumeClaim "+name+" has no volume yet", text),
			Remedy:  fmt.Sprintf("kubectl describe pvc %s -n %s", name, facts.Namespace),
		}
	}
	return nil
}

// lacksVolume reports whether a pending PVC waits for its volume, and not for the first
// pod that is scheduled.
func (facts *Facts) lacksVolume(claim *corev1.PersistentVolumeClaim, findings []Finding) bool {
	class := classOf(claim)
	if class == "" || claim.Annotations[selectedNode] != "" {
		return true
	}
	if mode, known := facts.BindingModes[class]; known {
		return mode != storagev1.VolumeBindingWaitForFirstConsumer
	}
	// Without the StorageClass, a shortage of nodes explains a pending PVC as well.
	return findingOf(findings, checkNodes) == nil
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

// findingOf returns the first finding of a check that blocks the job.
func findingOf(findings []Finding, checks ...string) *Finding {
	index := slices.IndexFunc(findings, func(finding Finding) bool { return slices.Contains(checks, finding.Check) && finding.Rank.Blocks() })
	if index < 0 {
		return nil
	}
	return &findings[index]
}

// waitForNodes finds the first pod of the gang without a node.
func waitForNodes(facts *Facts, findings []Finding) *Waiting {
	pods := facts.current()
	pod, message := diagnosis.Unscheduled(pods)
	if pod == nil || len(pod.Spec.SchedulingGates) > 0 {
		return nil
	}
	gang := &GangState{Pods: max(facts.expected(), len(pods)), Pod: pod.Name, Lacks: message}
	for _, other := range pods {
		if other.Spec.NodeName != "" {
			gang.Scheduled++
		}
	}
	answer := &Waiting{Cause: WaitNodes, Gang: gang, Object: "pod/" + pod.Name, Since: &pod.CreationTimestamp}
	text := fmt.Sprintf("Pod %s has no node: %s", pod.Name, message)
	if message == "" {
		text = fmt.Sprintf("Pod %s has no node, and scheduler %s has not reported why", pod.Name, cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName))
	}
	counted := ""
	answer.Remedy = fmt.Sprintf("kubectl describe pod %s -n %s", pod.Name, facts.Namespace)
	if shortage := findingOf(findings, checkNodes); shortage != nil {
		counted, answer.Remedy = shortage.Cause, shortage.Fix
		gang.Lacks = cmp.Or(gang.Lacks, shortage.Cause)
	}
	answer.Message = sentences(fmt.Sprintf("%d of %d pods are scheduled", gang.Scheduled, gang.Pods), text, counted)
	return answer
}

// current are the active pods of the job by name: those of the initializer until it has
// succeeded, then workers and launcher.
func (facts *Facts) current() (pods []*corev1.Pod) {
	for _, role := range []string{training.RoleWorker, training.RoleLauncher, training.RoleInitializer} {
		found := active(facts.podsOf(role))
		slices.SortFunc(found, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		pods = append(pods, found...)
	}
	return pods
}

// expected is how many pods must have a node before the job continues.
func (facts *Facts) expected() int {
	if facts.Job == nil || len(active(facts.podsOf(training.RoleInitializer))) > 0 {
		return 0
	}
	return int(facts.Job.Pods())
}

// createdAt is when a pod of the job was created; nil if it is not known.
func (facts *Facts) createdAt(pod string) *metav1.Time {
	for i := range facts.Pods.Value {
		if facts.Pods.Value[i].Name == pod && !facts.Pods.Value[i].CreationTimestamp.IsZero() {
			return &facts.Pods.Value[i].CreationTimestamp
		}
	}
	return nil
}

// conditionOfPod is a condition of a pod; nil if it has none of the type.
func conditionOfPod(pod *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	index := slices.IndexFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool { return condition.Type == conditionType })
	if index < 0 {
		return nil
	}
	return &pod.Status.Conditions[index]
}

func isReadyPod(pod *corev1.Pod) bool {
	ready := conditionOfPod(pod, corev1.PodReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// scheduledSince is when a pod got its node, or else when it was created.
func scheduledSince(pod *corev1.Pod) *metav1.Time {
	if scheduled := conditionOfPod(pod, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionTrue && !scheduled.LastTransitionTime.IsZero() {
		return &scheduled.LastTransitionTime
	}
	return &pod.CreationTimestamp
}

// waitForInitializer finds an initializer that has not succeeded.
func waitForInitializer(facts *Facts, _ []Finding) *Waiting {
	pods := facts.podsOf(training.RoleInitializer)
	if len(pods) == 0 || facts.reached(training.StepAdmitted) || slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded }) {
		return nil
	}
	pod := slices.MaxFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	answer := &Waiting{Cause: WaitInitializer, Object: "pod/" + pod.Name, Since: scheduledSince(pod), Message: "The initializer is fetching the dataset and the model."}
	if failed := lastFailure(pod); failed != nil {
		answer.Message = sentences(fmt.Sprintf("The initializer failed with exit code %d and is started again", failed.ExitCode), failed.Message)
		answer.Remedy = fmt.Sprintf("kubectl logs %s -n %s --previous", pod.Name, facts.Namespace)
	}
	return answer
}

// lastFailure is how a container of a pod last failed; nil if none did.
func lastFailure(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, ended := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
			if ended != nil && ended.ExitCode != 0 {
				return ended
			}
		}
	}
	return nil
}

// waitForWorkers finds the first pod that has a node and is not ready.
func waitForWorkers(facts *Facts, _ []Finding) *Waiting {
	workers := active(facts.podsOf(training.RoleWorker))
	slices.SortFunc(workers, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	ready := len(workers)
	var first *corev1.Pod
	for _, pod := range workers {
		if !isReadyPod(pod) {
			ready--
			first = cmp.Or(first, pod)
		}
	}
	total := len(workers)
	if facts.Job != nil {
		total = max(total, int(facts.Job.Worker.Replicas))
	}
	what := "is not ready"
	if first == nil && ready == total {
		first, what = facts.startingLauncher(), "is starting"
	}
	if first == nil || first.Spec.NodeName == "" {
		return nil
	}
	return &Waiting{
		Cause: WaitWorkers, Object: "pod/" + first.Name, Since: scheduledSince(first),
		Message: sentences(fmt.Sprintf("%d of %d workers are ready", ready, total), fmt.Sprintf("Pod %s on node %s %s%s", first.Name, first.Spec.NodeName, what, containerState(first))),
		Remedy:  fmt.Sprintf("kubectl describe pod %s -n %s", first.Name, facts.Namespace),
	}
}

// startingLauncher is the launcher's pod if none of its containers has started.
func (facts *Facts) startingLauncher() *corev1.Pod {
	launcher := facts.launcher()
	if launcher == nil || slices.ContainsFunc(slices.Concat(launcher.Status.InitContainerStatuses, launcher.Status.ContainerStatuses), func(status corev1.ContainerStatus) bool {
		return status.State.Running != nil
	}) {
		return nil
	}
	return launcher
}

// launcher is the newest active pod of the launcher.
func (facts *Facts) launcher() *corev1.Pod {
	pods := active(facts.podsOf(training.RoleLauncher))
	if len(pods) == 0 {
		return nil
	}
	return slices.MaxFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
}

// containerState is what the first container of a pod that has not started waits for.
func containerState(pod *corev1.Pod) string {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.State.Waiting != nil && status.State.Waiting.Reason != "" {
			return fmt.Sprintf(": container %s: %s", status.Name, sentences(status.State.Waiting.Reason, status.State.Waiting.Message))
		}
	}
	return ""
}

// launcherWaits reports whether the launcher runs and has not reached all workers.
func (facts *Facts) launcherWaits() bool {
	launcher := facts.launcher()
	return launcher != nil && launcher.Spec.NodeName != "" && facts.startingLauncher() == nil && !isReadyPod(launcher)
}

// waitForGate finds a launcher that cannot reach its workers.
func waitForGate(facts *Facts, findings []Finding) *Waiting {
	if !facts.launcherWaits() || facts.reached(training.StepWorkersReached) {
		return nil
	}
	launcher := facts.launcher()
	answer := &Waiting{
		Cause: WaitGate, Object: "pod/" + launcher.Name, Since: scheduledSince(launcher),
		Message: sentences(fmt.Sprintf("All workers are ready, and the launcher (pod %s) has not reached all of them", launcher.Name)),
		Remedy:  fmt.Sprintf("kubectl logs %s -n %s", launcher.Name, facts.Namespace),
	}
	if blocked := findingOf(findings, checkNetwork, checkDNS); blocked != nil {
		answer.Message, answer.Remedy = sentences(answer.Message, blocked.Title, blocked.Cause), blocked.Fix
	}
	return answer
}

// waitUnexplained is what the operator says, if no check explains it.
func waitUnexplained(facts *Facts, _ []Finding) *Waiting {
	answer := &Waiting{
		Cause: WaitUnknown, Object: resourceOf(facts.Kind) + "/" + facts.Name, Since: &facts.Previous.Submitted,
		Message: "The operator has not processed the job yet.",
	}
	if condition := facts.waitsFor(); condition != nil {
		answer.Message, answer.Since = sentences(condition.Message), since(condition)
	}
	return answer
}
