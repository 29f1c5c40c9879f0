// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
)

// place is the role and index of a pod in its job. A restarted pod has the place of the
// pod before it.
type place struct {
	role   string
	worker int32
}

// placeOf returns the place of a pod; false if it is not selected.
func placeOf(source Source, selection Selection, pod *corev1.Pod) (place, bool) {
	at := place{role: pod.Labels[training.LabelReplicaType], worker: -1}
	roles := selection.Roles
	if len(roles) == 0 {
		roles = []string{training.RoleLauncher, training.RoleWorker}
	}
	if at.role == training.RoleWorker {
		number, known := source.Worker(pod)
		if !known || selection.Worker != nil && *selection.Worker != number {
			return at, false
		}
		at.worker = number
	}
	return at, slices.Contains(roles, at.role)
}

func (at place) String() string {
	if at.role == training.RoleWorker {
		return fmt.Sprintf("worker %d", at.worker)
	}
	return "the " + at.role
}

// origin is one container of one pod.
type origin struct {
	uid       types.UID
	pod       string
	container string
	place     place
}

func (o *origin) String() string { return fmt.Sprintf("%s (pod %s)", o.place, o.pod) }

// originsOf returns the selected containers of a pod.
func originsOf(selection Selection, pod *corev1.Pod, at place) (origins []origin) {
	add := func(container string) {
		origins = append(origins, origin{uid: pod.UID, pod: pod.Name, container: container, place: at})
	}
	switch {
	case selection.Container != "":
		if slices.Contains(containerNames(pod), selection.Container) {
			add(selection.Container)
		}
	case at.role == training.RoleInitializer:
		for _, container := range pod.Spec.Containers {
			add(container.Name)
		}
	case len(pod.Spec.Containers) > 0:
		add(pod.Spec.Containers[0].Name)
	}
	return origins
}

func containerNames(pod *corev1.Pod) (names []string) {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, container := range containers {
			names = append(names, container.Name)
		}
	}
	return names
}

// attempts are the pods of one place, newest first.
type attempts struct {
	place place
	pods  []*corev1.Pod
}

// selected returns the selected pods by place: launcher and initializer before workers,
// workers by index.
func selected(source Source, selection Selection, pods []corev1.Pod) []attempts {
	byPlace := map[place][]*corev1.Pod{}
	for i := range pods {
		if at, chosen := placeOf(source, selection, &pods[i]); chosen {
			byPlace[at] = append(byPlace[at], &pods[i])
		}
	}
	result := make([]attempts, 0, len(byPlace))
	for at, pods := range byPlace {
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
		})
		result = append(result, attempts{place: at, pods: pods})
	}
	slices.SortFunc(result, func(a, b attempts) int {
		return cmp.Or(cmp.Compare(a.place.role, b.place.role), cmp.Compare(a.place.worker, b.place.worker))
	})
	return result
}

// unknownContainer returns an error if none of the pods has the container.
func unknownContainer(selection Selection, all []attempts) error {
	if selection.Container == "" || len(all) == 0 {
		return nil
	}
	known := map[string]bool{}
	for _, attempts := range all {
		for _, name := range containerNames(attempts.pods[0]) {
			known[name] = true
		}
	}
	if known[selection.Container] {
		return nil
	}
	err := &UnknownContainerError{Name: selection.Container}
	for name := range known {
		err.Known = append(err.Known, name)
	}
	slices.Sort(err.Known)
	return err
}

// state is the state of a container.
type state struct {
	// started: it is running or has run.
	started bool
	running bool
	// finished: it will not run again.
	finished bool
	// run is the newest run, whose log the kubelet returns, and before the run before it;
	// both are container IDs.
	run, before string
	// waits is what it is waiting for, if it has not started.
	waits string
}

// stateOf returns the state of a container.
func stateOf(pod *corev1.Pod, container string) state {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		if status.Name != container {
			continue
		}
		result := state{
			running:  status.State.Running != nil,
			finished: ended || status.State.Terminated != nil && isNotRestarted(pod, container, status.State.Terminated.ExitCode),
		}
		result.run, result.before = runs(&status)
		result.started = result.run != ""
		if waiting := status.State.Waiting; waiting != nil && !result.started {
			result.waits = waiting.Reason
			if waiting.Message != "" && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
				result.waits += ": " + waiting.Message
			}
		}
		return result
	}
	return state{finished: ended, waits: noContainerReason(pod)}
}

// runs returns the last run of a container and the one before it. A container that could
// not be started is terminated too, but has no ID.
func runs(status *corev1.ContainerStatus) (run, before string) {
	if ended := status.LastTerminationState.Terminated; ended != nil {
		before = ended.ContainerID
	}
	switch ended := status.State.Terminated; {
	case status.State.Running != nil:
		return cmp.Or(status.ContainerID, "running"), before
	case ended != nil && ended.ContainerID != "":
		return ended.ContainerID, before
	default:
		return before, ""
	}
}

// isNotRestarted reports whether the kubelet does not restart a terminated container.
func isNotRestarted(pod *corev1.Pod, container string, exitCode int32) bool {
	policy := pod.Spec.RestartPolicy
	for _, init := range pod.Spec.InitContainers {
		if init.Name == container {
			return exitCode == 0 && init.RestartPolicy == nil || policy == corev1.RestartPolicyNever
		}
	}
	return policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && exitCode == 0
}

// noContainerReason returns why a pod has no containers yet.
func noContainerReason(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return "it is not scheduled yet: " + cmp.Or(condition.Message, condition.Reason)
		}
	}
	if pod.Spec.NodeName == "" {
		return "it is not scheduled yet"
	}
	return "its containers are being created"
}
