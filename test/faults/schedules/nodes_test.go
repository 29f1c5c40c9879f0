// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
)

// gangLabel makes a pod a member of a PodGroup.
const gangLabel = "scheduling.x-k8s.io/pod-group"

// startOf is the start that a pod belongs to. An MPIJob keeps its workers when it is
// restarted.
func (simulation *simulation) startOf(pod *corev1.Pod) string {
	if !simulation.wish.isTrainJob() {
		return ""
	}
	return pod.Labels[training.LabelRestart]
}

func (simulation *simulation) changePod(pod *corev1.Pod, change func(*corev1.Pod)) {
	next := pod.DeepCopy()
	change(next)
	simulation.server.replace(next)
}

func setPodCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) {
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(one corev1.PodCondition) bool { return one.Type == kind })
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: seconds(time.Now()),
	})
}

// placePod is the scheduler's: a gang is placed once all of it is there.
func (simulation *simulation) placePod(pod *corev1.Pod) func() {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || hasEnded(pod) || simulation.full {
		return nil
	}
	if group := pod.Labels[gangLabel]; group != "" && !simulation.isGangComplete(pod.Namespace, group) {
		return nil
	}
	return func() {
		node := pick(simulation.dice, simulation.nodes...)
		if known := simulation.facts(simulation.roots[pod.UID]); known.scheduled.IsZero() {
			known.scheduled = time.Now().Truncate(time.Second)
		}
		simulation.changePod(pod, func(next *corev1.Pod) {
			next.Spec.NodeName = node
			setPodCondition(next, corev1.PodScheduled, corev1.ConditionTrue, "", "")
		})
	}
}

func (simulation *simulation) isGangComplete(namespace, name string) bool {
	group, err := simulation.server.get("PodGroup", client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil {
		return false
	}
	wanted, _, _ := unstructured.NestedInt64(group.(*unstructured.Unstructured).Object, "spec", "minMember")
	members := int64(0)
	for _, object := range simulation.server.all("Pod") {
		if object.GetLabels()[gangLabel] == name && object.GetDeletionTimestamp() == nil {
			members++
		}
	}
	return members >= wanted
}

// runPod is what the kubelet does next with a pod; nil for nothing.
func (simulation *simulation) runPod(pod *corev1.Pod) func() {
	if pod.Spec.NodeName == "" || !slices.Contains(simulation.nodes, pod.Spec.NodeName) {
		return nil
	}
	main := mainOf(pod)
	switch {
	case pod.DeletionTimestamp != nil:
		return simulation.stopPod(pod)
	case hasEnded(pod):
		return nil
	case main == nil || main.State.Waiting != nil:
		if !simulation.canMount(pod) {
			return nil
		}
		return func() { simulation.startPod(pod) }
	case main.State.Terminated != nil:
		return func() { simulation.endPod(pod) }
	case pod.Labels[training.LabelReplicaType] == training.RoleInitializer:
		return func() { simulation.exit(pod, simulation.exitCode()) }
	case pod.Labels[training.LabelReplicaType] == training.RoleLauncher:
		return simulation.runLauncher(pod)
	}
	return nil
}

func mainOf(pod *corev1.Pod) *corev1.ContainerStatus {
	if len(pod.Status.ContainerStatuses) == 0 {
		return nil
	}
	return &pod.Status.ContainerStatuses[0]
}

// canMount: a pod waits for the Secrets and ConfigMaps that it names.
func (simulation *simulation) canMount(pod *corev1.Pod) bool {
	for _, volume := range pod.Spec.Volumes {
		for _, named := range namedBy(&volume) {
			if _, err := simulation.server.get(named.kind, client.ObjectKey{Namespace: pod.Namespace, Name: named.name}); err != nil {
				return false
			}
		}
	}
	return true
}

type named struct{ kind, name string }

func namedBy(volume *corev1.Volume) (found []named) {
	if volume.Secret != nil {
		found = append(found, named{"Secret", volume.Secret.SecretName})
	}
	if volume.ConfigMap != nil {
		found = append(found, named{"ConfigMap", volume.ConfigMap.Name})
	}
	if volume.Projected != nil {
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil {
				found = append(found, named{"Secret", source.Secret.Name})
			}
			if source.ConfigMap != nil {
				found = append(found, named{"ConfigMap", source.ConfigMap.Name})
			}
		}
	}
	return found
}

func (simulation *simulation) startPod(pod *corev1.Pod) {
	simulation.changePod(pod, func(next *corev1.Pod) {
		next.Status.Phase = corev1.PodRunning
		if len(next.Status.PodIPs) == 0 {
			simulation.addresses++
			next.Status.PodIPs = []corev1.PodIP{{IP: netip.AddrFrom4([4]byte{10, byte(simulation.addresses >> 16), byte(simulation.addresses >> 8), byte(simulation.addresses)}).String()}}
		}
		next.Status.StartTime = new(seconds(time.Now()))
		earlier := next.Status.ContainerStatuses
		next.Status.ContainerStatuses = nil
		for i, container := range next.Spec.Containers {
			status := corev1.ContainerStatus{
				Name: container.Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: seconds(time.Now())}},
			}
			if i < len(earlier) {
				status.RestartCount, status.LastTerminationState = earlier[i].RestartCount, earlier[i].LastTerminationState
			}
			next.Status.ContainerStatuses = append(next.Status.ContainerStatuses, status)
		}
		if pod.Labels[training.LabelReplicaType] != training.RoleLauncher {
			setPodCondition(next, corev1.PodReady, corev1.ConditionTrue, "", "")
		}
	})
}

// runLauncher passes the gate when every worker is ready, and then ends. One that
// misses workers gives up after a while.
func (simulation *simulation) runLauncher(pod *corev1.Pod) func() {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(one corev1.PodCondition) bool { return one.Type == corev1.PodReady })
	// What MPI has connected once does not ask DNS again.
	isReached := simulation.isFound
	if ready {
		isReached = everyPod
	}
	complete := simulation.readyWorkers(pod, isReached) >= simulation.workersOf(pod)
	giveUp := time.Since(pod.Status.StartTime.Time) > 10*time.Minute
	switch {
	case ready && complete:
		return func() { simulation.exit(pod, simulation.exitCode()) }
	case complete:
		return func() {
			simulation.changePod(pod, func(next *corev1.Pod) { setPodCondition(next, corev1.PodReady, corev1.ConditionTrue, "", "") })
		}
	case giveUp && simulation.readyWorkers(pod, everyPod) >= simulation.workersOf(pod):
		return func() { simulation.fail("all workers run, and the launcher %s does not find them", pod.Name) }
	case ready || giveUp:
		return func() { simulation.exit(pod, 1) }
	}
	return nil
}

func everyPod(*corev1.Pod) bool { return true }

// readyWorkers are those that run and are found.
func (simulation *simulation) readyWorkers(launcher *corev1.Pod, isFound func(*corev1.Pod) bool) (ready int32) {
	for _, object := range simulation.server.all("Pod") {
		pod := object.(*corev1.Pod)
		if pod.Labels[training.LabelReplicaType] == training.RoleWorker && simulation.roots[pod.UID] == simulation.roots[launcher.UID] &&
			simulation.startOf(pod) == simulation.startOf(launcher) && pod.Status.Phase == corev1.PodRunning &&
			slices.Contains(simulation.nodes, pod.Spec.NodeName) && isFound(pod) {
			ready++
		}
	}
	return ready
}

// isFound tells whether DNS leads to a pod by its host name, and to no other.
func (simulation *simulation) isFound(pod *corev1.Pod) bool {
	found := map[string]bool{}
	for _, object := range simulation.server.all("EndpointSlice") {
		slice := object.(*discoveryv1.EndpointSlice)
		if slice.Namespace != pod.Namespace || slice.Labels[discoveryv1.LabelServiceName] != pod.Spec.Subdomain {
			continue
		}
		for i := range slice.Endpoints {
			if *slice.Endpoints[i].Hostname == pod.Spec.Hostname {
				found[slice.Endpoints[i].Addresses[0]] = true
			}
		}
	}
	return len(found) == 1 && found[pod.Status.PodIPs[0].IP]
}

func (simulation *simulation) exitCode() int32 {
	if simulation.happens(simulation.profile.failures) {
		return 1
	}
	return 0
}

// exit ends the pod's command, by itself or because it was told to. The kubelet
// restarts an initializer.
func (simulation *simulation) exit(pod *corev1.Pod, code int32) {
	simulation.noteExit(pod, code)
	ended := &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: seconds(time.Now()), StartedAt: *pod.Status.StartTime, Reason: "Completed"}
	if code != 0 {
		ended.Reason = "Error"
	}
	again := code != 0 && pod.DeletionTimestamp == nil && pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	simulation.changePod(pod, func(next *corev1.Pod) {
		for i := range next.Status.ContainerStatuses {
			status := &next.Status.ContainerStatuses[i]
			if status.State = (corev1.ContainerState{Terminated: ended}); again {
				status.RestartCount++
				status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
				status.LastTerminationState = corev1.ContainerState{Terminated: ended}
			}
		}
		if again {
			next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, func(one corev1.PodCondition) bool { return one.Type == corev1.PodReady })
		}
	})
}

// endPod tells of a pod's end: the kubelet tells of its containers' before.
func (simulation *simulation) endPod(pod *corev1.Pod) {
	simulation.noteEnd(pod, mainOf(pod).State.Terminated.ExitCode)
	simulation.changePod(pod, func(next *corev1.Pod) {
		next.Status.Phase = corev1.PodSucceeded
		if mainOf(pod).State.Terminated.ExitCode != 0 {
			next.Status.Phase = corev1.PodFailed
		}
		setPodCondition(next, corev1.PodReady, corev1.ConditionFalse, "PodCompleted", "")
	})
}

// stopPod ends a pod that is being deleted. Programs that are told to stop say 0, or
// the signal.
func (simulation *simulation) stopPod(pod *corev1.Pod) func() {
	main := mainOf(pod)
	switch {
	case hasEnded(pod) || main == nil || main.State.Waiting != nil:
		if !isInGrace(pod) {
			return nil
		}
		return func() { simulation.forget(pod) }
	case main.State.Terminated != nil:
		return func() { simulation.endPod(pod) }
	default:
		return func() { simulation.exit(pod, []int32{0, 143}[simulation.dice.IntN(2)]) }
	}
}

// forget deletes a pod without grace.
func (simulation *simulation) forget(pod *corev1.Pod) {
	if !hasEnded(pod) {
		// One that never ran has failed.
		next := pod.DeepCopy()
		next.Status.Phase = corev1.PodFailed
		pod = simulation.server.replace(next).(*corev1.Pod)
	}
	_ = simulation.server.delete("Pod", client.ObjectKeyFromObject(pod), client.DeleteOptions{GracePeriodSeconds: new(int64(0))})
}

// losePod is what becomes of a pod whose node is lost: it is deleted, which nobody
// carries out, and forgotten with its node.
func (simulation *simulation) losePod(pod *corev1.Pod) func() {
	if pod.Spec.NodeName == "" || slices.Contains(simulation.nodes, pod.Spec.NodeName) {
		return nil
	}
	switch {
	case pod.DeletionTimestamp == nil && !hasEnded(pod):
		return func() {
			simulation.bad(pod, "its node is lost")
			simulation.changePod(pod, func(next *corev1.Pod) {
				setPodCondition(next, corev1.PodReady, corev1.ConditionFalse, "NodeLost", "")
				setPodCondition(next, corev1.DisruptionTarget, corev1.ConditionTrue, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
			})
			there, _ := simulation.server.get("Pod", client.ObjectKeyFromObject(pod))
			simulation.delete(there, metav1.DeletePropagationBackground)
		}
	case pod.DeletionTimestamp == nil || !isInGrace(pod) && hasEnded(pod):
		// What has ended stays until somebody deletes it; what waits for finalizers is
		// not the node's.
		return nil
	default:
		return func() {
			if !hasEnded(pod) {
				simulation.changePod(pod, func(next *corev1.Pod) { next.Status.Phase = corev1.PodFailed })
			}
			_ = simulation.server.delete("Pod", client.ObjectKeyFromObject(pod), client.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}
	}
}
