package joblog

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
)

// place is what a pod is in its job. Pods that follow each other in one place are
// attempts at the same thing.
type place struct {
	role   string
	worker int32
}

// placeOf is where a pod belongs; false if it is not selected.
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

func (origin *origin) String() string { return fmt.Sprintf("%s (pod %s)", origin.place, origin.pod) }

// originsOf are the containers of a pod that are selected.
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

// attempts are the pods of a place, newest first.
type attempts struct {
	place place
	pods  []*corev1.Pod
}

// selected are the pods that are asked for, by place: launcher and initializer
// before workers, workers by number.
func selected(source Source, selection Selection, pods []corev1.Pod) []attempts {
	byPlace := map[place][]*corev1.Pod{}
	for i := range pods {
		if at, chosen := placeOf(source, selection, &pods[i]); chosen {
			byPlace[at] = append(byPlace[at], &pods[i])
		}
	}
	found := make([]attempts, 0, len(byPlace))
	for at, pods := range byPlace {
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
		})
		found = append(found, attempts{place: at, pods: pods})
	}
	slices.SortFunc(found, func(a, b attempts) int {
		return cmp.Or(cmp.Compare(a.place.role, b.place.role), cmp.Compare(a.place.worker, b.place.worker))
	})
	return found
}

// unknownContainer is the error if none of the pods has the container.
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

// state is where a container stands.
type state struct {
	// started: it runs, or has run.
	started bool
	// running now.
	running bool
	// over: it will not run again.
	over bool
	// run is whose log is read when a container's is asked for, and before the run
	// before it; both by the IDs of the container runtime.
	run, before string
	// waits says what it waits for, if it has not started.
	waits string
}

// stateOf is where a container of a pod stands. A pod that is gone has none.
func stateOf(pod *corev1.Pod, container string) state {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		if status.Name != container {
			continue
		}
		found := state{
			running: status.State.Running != nil,
			over:    ended || status.State.Terminated != nil && staysEnded(pod, container, status.State.Terminated.ExitCode),
		}
		found.run, found.before = runs(&status)
		found.started = found.run != ""
		if waiting := status.State.Waiting; waiting != nil && !found.started {
			found.waits = waiting.Reason
			if waiting.Message != "" && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
				found.waits += ": " + waiting.Message
			}
		}
		return found
	}
	return state{over: ended, waits: waitsForPlace(pod)}
}

// runs are the last run of a container and the one before it. A container that
// could not be started is said to have ended too, but without an ID.
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

// staysEnded tells whether kubelet leaves a container that has ended as it is.
func staysEnded(pod *corev1.Pod, container string, exitCode int32) bool {
	policy := pod.Spec.RestartPolicy
	for _, init := range pod.Spec.InitContainers {
		if init.Name == container {
			return exitCode == 0 && init.RestartPolicy == nil || policy == corev1.RestartPolicyNever
		}
	}
	return policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && exitCode == 0
}

// waitsForPlace says why a pod has no containers yet.
func waitsForPlace(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return "it has no node yet: " + cmp.Or(condition.Message, condition.Reason)
		}
	}
	if pod.Spec.NodeName == "" {
		return "it has no node yet"
	}
	return "its containers are being created"
}
