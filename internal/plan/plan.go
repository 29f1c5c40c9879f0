package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/gang"
	"github.com/trireme-mpi/trireme/internal/job"
)

// Stage is where a job stands, as far as its objects are concerned.
type Stage string

const (
	// Initializing: data is fetched, and no node is asked for yet.
	Initializing Stage = "Initializing"
	// Suspended: there must be no pods.
	Suspended Stage = "Suspended"
	// Active: launcher and workers run, or wait for their places.
	Active Stage = "Active"
	// Finished: what is no longer needed goes.
	Finished Stage = "Finished"
)

// Surroundings are what the plan must know of the cluster and of the operator.
type Surroundings struct {
	Delivery         Delivery
	InitializerImage string
	// ClusterDomain is what names of Services end in, such as cluster.local.
	ClusterDomain string
	Gang          gang.Backend
	// EgressPorts stay open under a Restricted NetworkPolicy.
	EgressPorts []int32
}

// State is what the plan must know of the job's pods.
type State struct {
	Stage Stage
	// WorkersReady: a launcher that waits for them may start.
	WorkersReady bool
	// Workers that are there, as far as they matter to what must go.
	Workers []*corev1.Pod
	// LauncherActive: the launcher has not ended.
	LauncherActive bool
	// InitializerActive: the initializer has not ended.
	InitializerActive bool
	// WorkloadEnds: JobSet knows by itself that the job has ended.
	WorkloadEnds bool
}

// Plan is what must exist, in the order in which it must come to exist, and what
// must go. What exists is never changed: templates are immutable, Kueue edits
// them, and a newer operator must not touch running work.
type Plan struct {
	Ensure []gang.Object
	Remove []gang.Object
	// StopLauncher suspends the batch Job of an MPIJob's launcher: what has ended
	// of it stays, for its logs.
	StopLauncher bool
}

// Of is the plan of a job.
func Of(made *job.Job, state State, in Surroundings) Plan {
	switch state.Stage {
	case Initializing:
		return Plan{Ensure: own(made, initializing(made, in))}
	case Suspended:
		return Plan{Remove: slices.Concat(workloadKeys(made, state), groupKeys(made, in), initializerKeys(made))}
	case Finished:
		return finished(made, state, in)
	default:
		return Plan{Ensure: own(made, active(made, state, in))}
	}
}

func active(made *job.Job, state State, in Surroundings) []gang.Object {
	objects := support(made, in)
	if group := in.Gang.Group(made, Selector(made)); group != nil {
		objects = append(objects, group)
	}
	if made.Kind == job.KindTrainJob {
		return append(objects, jobSet(made, in))
	}
	for _, pod := range workerPods(made, in) {
		objects = append(objects, pod)
	}
	if HoldsLauncherBack(made, state, in) {
		return objects
	}
	return append(objects, launcherJob(made, in))
}

// HoldsLauncherBack tells whether the launcher comes only after its workers. A gang is
// placed as a whole or not at all: there the gate alone holds the launcher back.
func HoldsLauncherBack(made *job.Job, state State, in Surroundings) bool {
	return made.Kind == job.KindMPIJob && made.LauncherWaits && in.Gang.Name() == gang.None && !state.WorkersReady
}

// finished lets go of what a job that has ended does not need. Keys always go.
func finished(made *job.Job, state State, in Surroundings) Plan {
	names := NamesOf(made)
	plan := Plan{Remove: append(groupKeys(made, in), &corev1.Secret{ObjectMeta: key(made, names.Secret)})}
	plan.StopLauncher = state.LauncherActive && made.Kind == job.KindMPIJob
	switch {
	case made.Lifetime.CleanPodPolicy == cleanAll:
		plan.Remove = append(plan.Remove, workloadKeys(made, state)...)
		plan.StopLauncher = false
	case made.Kind == job.KindTrainJob:
		// JobSet ends what still runs, unless the operator ended the job: then
		// JobSet does not know.
		if !state.WorkloadEnds {
			plan.Remove = append(plan.Remove, workloadKeys(made, state)...)
		}
	case made.Lifetime.CleanPodPolicy == cleanRunning:
		for _, pod := range state.Workers {
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				plan.Remove = append(plan.Remove, &corev1.Pod{ObjectMeta: key(made, pod.Name)})
			}
		}
	}
	if state.InitializerActive || made.Lifetime.CleanPodPolicy == cleanAll {
		plan.Remove = append(plan.Remove, initializerKeys(made)...)
	}
	return plan
}

func groupKeys(made *job.Job, in Surroundings) []gang.Object {
	if group := in.Gang.Group(made, nil); group != nil {
		return []gang.Object{group}
	}
	return nil
}

func key(made *job.Job, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: made.Namespace, Name: name}
}

// object is the metadata of something that belongs to a job.
func object(made *job.Job, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: made.Namespace, Name: name, Labels: Selector(made)}
}

// own makes the job the owner of objects: they go with it, and a job that is
// deleted in the foreground waits for them.
func own(made *job.Job, objects []gang.Object) []gang.Object {
	owner := OwnerOf(made)
	for _, object := range objects {
		object.SetOwnerReferences([]metav1.OwnerReference{owner})
	}
	return objects
}

// OwnerOf is the reference by which objects belong to a job.
func OwnerOf(made *job.Job) metav1.OwnerReference {
	version := v2alpha1.GroupVersion
	if made.Kind == job.KindMPIJob {
		version = v2beta1.GroupVersion
	}
	return metav1.OwnerReference{
		APIVersion: version.String(), Kind: string(made.Kind), Name: made.Name, UID: made.UID,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}
