// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Stage decides which objects a job must have.
type Stage string

const (
	// Initializing: the initializer fetches data; there are no launcher and workers yet.
	Initializing Stage = "Initializing"
	// Suspended: the job has no pods, and its workload is deleted.
	Suspended Stage = "Suspended"
	// Held: the job waits for a queue or a quota. It has no launcher and workers; its
	// workload stays.
	Held Stage = "Held"
	// Restarting: the pods of the last start are deleted before the next start.
	Restarting Stage = "Restarting"
	// Active: launcher and workers run, or wait to be scheduled.
	Active Stage = "Active"
	// Finished: objects that are no longer needed are deleted.
	Finished Stage = "Finished"
)

// Environment is what the plan depends on in the cluster and in the operator's
// configuration.
type Environment struct {
	Delivery         Delivery
	InitializerImage string
	// ClusterDomain is the cluster's DNS domain, such as cluster.local.
	ClusterDomain string
	Gang          gang.Backend
	// EgressPorts stay open under a Restricted NetworkPolicy.
	EgressPorts []int32
	// Reports is where pods report the progress of their job; nil if nothing receives it.
	Reports *Reports
}

// State is the observed state of the job's objects.
type State struct {
	Stage Stage
	// Restart is how often the job was restarted.
	Restart int32
	// Workload is the UID of the job's workload; empty if it does not exist.
	Workload types.UID
	// WorkersReady: a launcher that waits for them may start.
	WorkersReady bool
	// LauncherDone: the launcher's command has finished, whether or not its pod has.
	LauncherDone bool
	// Pods that exist.
	Launchers, Workers, Initializers []*corev1.Pod
	// Addresses are the EndpointSlices that exist.
	Addresses []*discoveryv1.EndpointSlice
}

// Plan is what must exist and what must be deleted. Existing objects are never changed:
// templates are immutable, Kueue edits them, and a newer operator must not disturb
// running jobs.
type Plan struct {
	// Ensure is created first, in any order; Pods are created after it.
	Ensure []gang.Object
	Pods   []*corev1.Pod
	Remove []gang.Object
}

// Of is the plan of a job.
func Of(j *job.Job, state State, env Environment) Plan {
	var plan Plan
	switch state.Stage {
	case Initializing:
		if j.Initializers() > 0 {
			plan.Ensure = setOwner(j, initializerObjects(j, env))
			plan.Pods = initializerPods(j, state, env)
		}
	case Suspended:
		plan.Remove = slices.Concat(workloadKey(j, state), keys(j, allPods(state)), groupKeys(j, env), addressKeys(j, state))
	case Held:
		plan.Remove = slices.Concat(keys(j, heldPods(j, state)), addressKeys(j, state))
	case Restarting:
		plan.Remove = keys(j, podsToReplace(j, state))
		if j.Kind.Traits().RestartsAsWhole {
			plan.Remove = append(plan.Remove, addressKeys(j, state)...)
		}
	case Finished:
		plan.Remove = removedWhenFinished(j, state, env)
	default:
		plan.Ensure = setOwner(j, activeObjects(j, env))
		plan.Pods = startPods(j, state, env)
	}
	return plan
}

// activeObjects are the objects that the job's pods refer to, its PodGroup and its
// workload.
func activeObjects(j *job.Job, env Environment) []gang.Object {
	objects := supportObjects(j, env)
	if group := env.Gang.Group(j, Selector(j)); group != nil {
		objects = append(objects, group)
	}
	if j.Kind.Traits().IsWorkload {
		return objects
	}
	return append(objects, workload(j))
}

// heldPods are the pods that a job must not have while it waits for a queue or a quota.
func heldPods(j *job.Job, state State) []*corev1.Pod {
	pods := slices.Concat(state.Launchers, state.Workers)
	if j.Kind.Traits().IsWorkload {
		// The queue has suspended the initializers, too.
		pods = append(pods, slices.DeleteFunc(slices.Clone(state.Initializers), isFinished)...)
	}
	return pods
}

// HoldsLauncherBack reports whether the launcher must not be created before its workers
// are ready. A gang needs all of its pods to be scheduled; there only the gate makes the
// launcher wait.
func HoldsLauncherBack(j *job.Job, state State, env Environment) bool {
	return j.LauncherWaits && env.Gang.Name() == gang.None && !state.WorkersReady
}

// podsToReplace are the pods that must be deleted before a restart. A finished
// initializer is kept for its log, and so is a finished launcher if the workers stay.
func podsToReplace(j *job.Job, state State) []*corev1.Pod {
	if j.Kind.Traits().RestartsAsWhole {
		initializers := slices.DeleteFunc(slices.Clone(state.Initializers), isFinished)
		return slices.Concat(state.Launchers, state.Workers, initializers)
	}
	return slices.DeleteFunc(slices.Concat(state.Launchers, state.Initializers), isFinished)
}

// removedWhenFinished are the objects that a finished job does not need. The Secret with
// the SSH keys is always deleted.
func removedWhenFinished(j *job.Job, state State, env Environment) []gang.Object {
	remove := append(groupKeys(j, env), &corev1.Secret{ObjectMeta: keyMeta(j, NamesOf(j).Secret)})
	remove = append(remove, addressKeys(j, state)...)
	if j.Lifetime.CleanPodPolicy == cleanAll {
		return slices.Concat(remove, workloadKey(j, state), keys(j, allPods(state)))
	}
	var pods []*corev1.Pod
	if !state.LauncherDone {
		pods = append(pods, state.Launchers...)
	}
	if j.Lifetime.CleanPodPolicy == cleanRunning {
		pods = append(pods, state.Workers...)
	}
	pods = append(pods, state.Initializers...)
	return append(remove, keys(j, slices.DeleteFunc(pods, isFinished))...)
}

// Released are the launchers that no longer need their finalizer, because the operator
// knows how they terminated.
func Released(state State) (released []*corev1.Pod) {
	for _, pod := range state.Launchers {
		isEndKnown := state.Stage != Active && state.Stage != Initializing || RestartOf(pod) < state.Restart
		if isEndKnown && slices.Contains(pod.Finalizers, training.FinalizerLauncher) {
			released = append(released, pod)
		}
	}
	return released
}

// RestartOf is the number of the restart that a pod was created for.
func RestartOf(pod *corev1.Pod) int32 {
	number, err := strconv.ParseInt(pod.Labels[training.LabelRestart], 10, 32)
	if err != nil || number < 0 {
		return 0
	}
	return int32(number)
}

// isFinished reports whether a pod has finished, or all of its containers have
// terminated for good. The kubelet reports the containers shortly before the pod, and a
// pod that is deleted in between loses its log.
func isFinished(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true
	}
	statuses := pod.Status.ContainerStatuses
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever && len(statuses) > 0 && len(statuses) == len(pod.Spec.Containers) &&
		!slices.ContainsFunc(statuses, func(status corev1.ContainerStatus) bool { return status.State.Terminated == nil })
}

func allPods(state State) []*corev1.Pod {
	return slices.Concat(state.Launchers, state.Workers, state.Initializers)
}

// keys identify pods for deletion. The UID protects newer pods of the same name.
func keys(j *job.Job, pods []*corev1.Pod) (keys []gang.Object) {
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		reference := &corev1.Pod{ObjectMeta: keyMeta(j, pod.Name)}
		reference.UID = pod.UID
		keys = append(keys, reference)
	}
	return keys
}

func groupKeys(j *job.Job, env Environment) []gang.Object {
	if group := env.Gang.Group(j, nil); group != nil {
		return []gang.Object{group}
	}
	return nil
}

func keyMeta(j *job.Job, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: j.Namespace, Name: name}
}

// objectMeta is the metadata of an object that belongs to a job.
func objectMeta(j *job.Job, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: j.Namespace, Name: name, Labels: Selector(j)}
}

// setOwner makes the job the owner of objects: they are deleted with it, and a
// foreground deletion of the job waits for them.
func setOwner(j *job.Job, objects []gang.Object) []gang.Object {
	owner := OwnerOf(j)
	for _, object := range objects {
		if !outlives(j, object) {
			object.SetOwnerReferences([]metav1.OwnerReference{owner})
		}
	}
	return objects
}

// OwnerOf is the owner reference to a job.
func OwnerOf(j *job.Job) metav1.OwnerReference {
	return controllerRef(j.Kind.Traits().APIVersion, string(j.Kind), j.Name, j.UID)
}

func controllerRef(version, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: version, Kind: kind, Name: name, UID: uid, Controller: new(true), BlockOwnerDeletion: new(true),
	}
}
