// SPDX-License-Identifier: Apache-2.0

// Package jobview presents a job of either kind to users of the command line and the
// server.
package jobview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// View is a job of either kind with its status.
type View struct {
	client.Object
	Kind *Kind
	diagnosis.Previous
	Conditions []metav1.Condition
	// Suspend is spec.suspend, set by the user or by a queue.
	Suspend bool
	// OfMPIOperator: mpi-operator runs the job, not Trireme. Its status has conditions
	// only.
	OfMPIOperator bool
}

// Of returns the view of a job.
func Of(object client.Object) *View {
	switch read := object.(type) {
	case *v2alpha1.TrainJob:
		return &View{Object: read, Kind: TrainJobs, Previous: diagnosis.FromTrainJob(read), Conditions: read.Status.Conditions, Suspend: isTrue(read.Spec.Suspend)}
	case *v2beta1.MPIJob:
		view := &View{Object: read, Kind: MPIJobs, Previous: diagnosis.FromMPIJob(read), Suspend: isTrue(read.Spec.RunPolicy.Suspend)}
		for _, condition := range read.Status.Conditions {
			view.Conditions = append(view.Conditions, metav1.Condition{
				Type: string(condition.Type), Status: metav1.ConditionStatus(condition.Status), Reason: condition.Reason,
				Message: condition.Message, LastTransitionTime: condition.LastTransitionTime,
			})
		}
		if view.OfMPIOperator = job.IsOfMPIOperator(read); view.OfMPIOperator {
			view.setPhaseOfMPIOperator()
		}
		return view
	default:
		panic(fmt.Sprintf("%T is not a job", object))
	}
}

// setPhaseOfMPIOperator derives the phase from the conditions of mpi-operator.
func (view *View) setPhaseOfMPIOperator() {
	view.Phase = training.PhasePending
	for _, derived := range []struct {
		condition v2beta1.JobConditionType
		phase     training.Phase
	}{{v2beta1.JobRunning, training.PhaseRunning}, {v2beta1.JobSucceeded, training.PhaseSucceeded}, {v2beta1.JobFailed, training.PhaseFailed}} {
		condition := meta.FindStatusCondition(view.Conditions, string(derived.condition))
		if condition == nil || condition.Status != metav1.ConditionTrue {
			continue
		}
		view.Phase = derived.phase
		if derived.phase == training.PhaseFailed {
			view.FailureMessage = condition.Message
		}
	}
}

func isTrue(value *bool) bool { return value != nil && *value }

// stateRestarting is the state of a job that failed and is restarted.
const stateRestarting = "Restarting"

// States are all values of State.
var States = []string{
	"Submitted", "Queued", "Suspended",
	string(training.PhasePending), stateRestarting, string(training.PhaseRunning), string(training.PhaseSucceeded), string(training.PhaseFailed),
	"Deleting",
}

// State returns the state of a job in one word.
func (view *View) State() string {
	switch {
	case view.GetDeletionTimestamp() != nil:
		return "Deleting"
	case view.Finished():
		return string(view.Phase)
	case view.Queued:
		return "Queued"
	case view.Suspend || view.Suspended:
		return "Suspended"
	case view.Phase == "":
		return "Submitted"
	case view.IsRestarting():
		return stateRestarting
	default:
		return string(view.Phase)
	}
}

// IsRestarting reports whether the job failed and is restarted: it is waiting for the
// restart, or its new pods are not running yet.
func (view *View) IsRestarting() bool {
	return view.Restart != nil && view.Phase == training.PhasePending && !view.Suspend && !view.Suspended
}

// Explanation returns the operator's message for the state of the job.
func (view *View) Explanation() string {
	if view.OfMPIOperator && !view.Finished() {
		return "mpi-operator runs this job"
	}
	if view.Phase == training.PhaseFailed {
		return view.FailureMessage
	}
	if wait := view.QuotaWait; wait != nil && !view.Finished() && !view.Suspend && !view.Suspended {
		return strings.TrimSuffix(fmt.Sprintf("Waiting for quota %s", wait.Name), " ") + ": " + wait.Message
	}
	conditionTypes := []string{string(v2beta1.JobSuspended), string(v2beta1.JobPending)}
	if view.Kind == TrainJobs {
		conditionTypes = []string{v2alpha1.ConditionSuspended}
	}
	for _, conditionType := range conditionTypes {
		if condition := meta.FindStatusCondition(view.Conditions, conditionType); condition != nil && condition.Status == metav1.ConditionTrue {
			return condition.Message
		}
	}
	for _, conditionType := range []string{v2alpha1.ConditionTrainingComplete, string(v2beta1.JobSucceeded), string(v2beta1.JobRunning)} {
		if condition := meta.FindStatusCondition(view.Conditions, conditionType); condition != nil {
			return condition.Message
		}
	}
	return "Waiting for the operator to process the job"
}

// Workers is how many workers are ready, of all: 3/4, or - if it is not known.
func (view *View) Workers() string {
	ready, total, known := view.WorkerCounts()
	if !known {
		return "-"
	}
	return fmt.Sprintf("%d/%d", ready, total)
}

// WorkerCounts is how many workers are ready, and how many the job has. Before the
// operator has processed the job, its spec may have the number.
func (view *View) WorkerCounts() (ready, total int32, known bool) {
	if view.ReadyWorkers != "" {
		return view.ReadyWorkerCount, view.WorkerCount, true
	}
	switch read := view.Object.(type) {
	case *v2alpha1.TrainJob:
		if read.Spec.Trainer.NumNodes != nil {
			return 0, *read.Spec.Trainer.NumNodes, true
		}
	case *v2beta1.MPIJob:
		if worker := read.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]; worker != nil {
			count := int32(1)
			if worker.Replicas != nil {
				count = *worker.Replicas
			}
			return 0, count, true
		}
	}
	return 0, 0, false
}

// Ran returns how long a job has been running, or ran.
func (view *View) Ran(now time.Time) (time.Duration, bool) {
	if view.StartTime == nil {
		return 0, false
	}
	end := now
	if view.CompletionTime != nil {
		end = view.CompletionTime.Time
	} else if view.Finished() {
		return 0, false
	}
	return max(end.Sub(view.StartTime.Time), 0), true
}

// Reached returns when a step was reached.
func (view *View) Reached(step training.TimelineStep) (time.Time, bool) {
	index := slices.IndexFunc(view.Timeline, func(entry training.TimelineEntry) bool { return entry.Step == step })
	if index < 0 {
		return time.Time{}, false
	}
	return view.Timeline[index].Time.Time, true
}

// Named returns kind and name of the job for commands and messages.
func (view *View) Named() string { return view.Kind.Command + "/" + view.GetName() }

// Model returns the job with all defaults. It uses the operator's default configuration,
// because the real one is not known here. It reads the runtime of a TrainJob, and returns
// ErrNoRuntime if it does not exist.
func (view *View) Model(ctx context.Context, reader client.Reader) (*job.Job, error) {
	defaults := config.Default().JobDefaults()
	switch read := view.Object.(type) {
	case *v2beta1.MPIJob:
		return job.FromMPIJob(read, defaults), nil
	case *v2alpha1.TrainJob:
		runtime, err := RuntimeOf(ctx, reader, read)
		if err != nil {
			return nil, err
		}
		return job.FromTrainJob(read, runtime, defaults), nil
	default:
		panic(fmt.Sprintf("%T is not a job", view.Object))
	}
}

// ErrNoRuntime: the runtime of a TrainJob does not exist.
var ErrNoRuntime = errors.New("the job's runtime does not exist")

// RuntimeToRead returns the key of the runtime that a reference in a namespace names, an
// empty object to read it into, and the spec of that object.
func RuntimeToRead(namespace string, ref v2alpha1.RuntimeRef) (client.ObjectKey, client.Object, *v2alpha1.TrainingRuntimeSpec) {
	if ref.Kind == v2alpha1.RuntimeKindNamespaced {
		runtime := &v2alpha1.TrainingRuntime{}
		return client.ObjectKey{Namespace: namespace, Name: ref.Name}, runtime, &runtime.Spec
	}
	runtime := &v2alpha1.ClusterTrainingRuntime{}
	return client.ObjectKey{Name: ref.Name}, runtime, &runtime.Spec
}

// RuntimeOf reads the runtime of a TrainJob.
func RuntimeOf(ctx context.Context, reader client.Reader, trainJob *v2alpha1.TrainJob) (*v2alpha1.TrainingRuntimeSpec, error) {
	ref := trainJob.Spec.RuntimeRef
	key, object, spec := RuntimeToRead(trainJob.Namespace, ref)
	err := reader.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s %s", ErrNoRuntime, ref.Kind, ref.Name)
	}
	return spec, err
}

// Identity is as much of the model as finds the job's pods; no runtime is needed.
func (view *View) Identity() *job.Job {
	made := &job.Job{Kind: view.Kind.Kind, Namespace: view.GetNamespace(), Name: view.GetName(), UID: view.GetUID()}
	_, made.Worker.Replicas, _ = view.WorkerCounts()
	return made
}

// Tags returns the MPI implementation whose tags the lines of a job have. Without a
// runtime it is Open MPI, whose tags are unambiguous.
func (view *View) Tags(ctx context.Context, from client.Reader) mpi.Implementation {
	if model, err := view.Model(ctx, from); err == nil {
		return mpi.Implementation(model.MPI)
	}
	return mpi.Implementation(job.OpenMPI)
}

// Suspension returns the patch that suspends or resumes a job.
func (kind *Kind) Suspension(suspend bool) client.Patch {
	patch := fmt.Sprintf(`{"spec":{"suspend":%t}}`, suspend)
	if kind == MPIJobs {
		patch = fmt.Sprintf(`{"spec":{"runPolicy":{"suspend":%t}}}`, suspend)
	}
	return client.RawPatch(types.MergePatchType, []byte(patch))
}
