package cli

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/config"
	"github.com/trireme-mpi/trireme/internal/diagnosis"
	"github.com/trireme-mpi/trireme/internal/job"
)

// view is a job of either kind as its users see it.
type view struct {
	client.Object
	kind *kind
	diagnosis.Previous
	conditions []metav1.Condition
	// suspend is what the user, or a queue, asks for.
	suspend bool
}

// viewOf reads a job.
func viewOf(object client.Object) *view {
	switch read := object.(type) {
	case *v2alpha1.TrainJob:
		return &view{Object: read, kind: trainJobs, Previous: diagnosis.FromTrainJob(read), conditions: read.Status.Conditions, suspend: isTrue(read.Spec.Suspend)}
	case *v2beta1.MPIJob:
		seen := &view{Object: read, kind: mpiJobs, Previous: diagnosis.FromMPIJob(read), suspend: isTrue(read.Spec.RunPolicy.Suspend)}
		for _, condition := range read.Status.Conditions {
			seen.conditions = append(seen.conditions, metav1.Condition{
				Type: string(condition.Type), Status: metav1.ConditionStatus(condition.Status), Reason: condition.Reason,
				Message: condition.Message, LastTransitionTime: condition.LastTransitionTime,
			})
		}
		return seen
	default:
		panic(fmt.Sprintf("%T is no job", object))
	}
}

func isTrue(value *bool) bool { return value != nil && *value }

// state is how a job stands, in one word.
func (view *view) state() string {
	switch {
	case view.GetDeletionTimestamp() != nil:
		return "Deleting"
	case view.Finished():
		return string(view.Phase)
	case view.Queued:
		return "Queued"
	case view.suspend || view.Suspended:
		return "Suspended"
	case view.Phase == "":
		return "Submitted"
	default:
		return string(view.Phase)
	}
}

// stateColour is the colour of a state.
func stateColour(state string) colour {
	switch state {
	case string(training.PhaseSucceeded):
		return green
	case string(training.PhaseFailed):
		return red
	case string(training.PhaseRunning):
		return cyan
	default:
		return yellow
	}
}

// explanation says why a job stands as it does, in the operator's words.
func (view *view) explanation() string {
	if view.Phase == training.PhaseFailed {
		return view.FailureMessage
	}
	ask := []string{string(v2beta1.JobSuspended), string(v2beta1.JobPending)}
	if view.kind == trainJobs {
		ask = []string{v2alpha1.ConditionSuspended}
	}
	for _, question := range ask {
		if condition := meta.FindStatusCondition(view.conditions, question); condition != nil && condition.Status == metav1.ConditionTrue {
			return condition.Message
		}
	}
	for _, question := range []string{v2alpha1.ConditionTrainingComplete, string(v2beta1.JobSucceeded), string(v2beta1.JobRunning)} {
		if condition := meta.FindStatusCondition(view.conditions, question); condition != nil {
			return condition.Message
		}
	}
	return "The operator has not looked at the job yet"
}

// workers that the job asks for, if it says so itself.
func (view *view) workers() string {
	if view.ReadyWorkers != "" {
		return view.ReadyWorkers
	}
	switch read := view.Object.(type) {
	case *v2alpha1.TrainJob:
		if read.Spec.Trainer.NumNodes != nil {
			return fmt.Sprintf("0/%d", *read.Spec.Trainer.NumNodes)
		}
	case *v2beta1.MPIJob:
		if worker := read.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]; worker != nil {
			count := int32(1)
			if worker.Replicas != nil {
				count = *worker.Replicas
			}
			return fmt.Sprintf("0/%d", count)
		}
	}
	return "-"
}

// ran is how long a job ran, or runs.
func (view *view) ran(now time.Time) (time.Duration, bool) {
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

// reached is when a step was reached.
func (view *view) reached(step training.TimelineStep) (time.Time, bool) {
	index := slices.IndexFunc(view.Timeline, func(entry training.TimelineEntry) bool { return entry.Step == step })
	if index < 0 {
		return time.Time{}, false
	}
	return view.Timeline[index].Time.Time, true
}

// named is how the job is written in commands and messages.
func (view *view) named() string { return view.kind.command + "/" + view.GetName() }

// get reads one job.
func (kind *kind) get(ctx context.Context, reader client.Reader, namespace, name string) (*view, error) {
	object := kind.newObject()
	if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(kind.gvk)
	return viewOf(object), nil
}

// find reads a job that is written as NAME or KIND/NAME.
func (environment *environment) find(ctx context.Context, reader client.Reader, namespace, written string) (*view, error) {
	word, name, named := strings.Cut(written, "/")
	if named {
		kind, err := kindNamed(word)
		if err != nil {
			return nil, err
		}
		return kind.get(ctx, reader, namespace, name)
	}
	for _, kind := range kinds {
		found, err := kind.get(ctx, reader, namespace, written)
		if err == nil || !apierrors.IsNotFound(err) {
			return found, err
		}
	}
	return nil, &failure{code: exitNotFound, message: fmt.Sprintf("no job %q in namespace %q", written, namespace), reason: "NotFound",
		suggestions: []string{"See what there is, in every namespace: " + environment.calledAs + " training list --all-namespaces"}}
}

// kindNamed is the kind that a user means by a word.
func kindNamed(word string) (*kind, error) {
	for _, kind := range kinds {
		if strings.EqualFold(word, kind.command) || slices.Contains(kind.aliases, strings.ToLower(word)) || word == kind.resource() {
			return kind, nil
		}
	}
	return nil, &failure{code: exitUsage, message: fmt.Sprintf("%q is no kind of job", word), reason: "Usage", suggestions: []string{"Write trainjob/NAME or mpijob/NAME"}}
}

// model is the job with every default, as the operator sees it: where the operator
// is configured otherwise, its defaults are not known here. A TrainJob's runtime is
// read; errNoRuntime if it is gone.
func (view *view) model(ctx context.Context, reader client.Reader) (*job.Job, error) {
	defaults := config.Default().JobDefaults()
	switch read := view.Object.(type) {
	case *v2beta1.MPIJob:
		return job.FromMPIJob(read, defaults), nil
	case *v2alpha1.TrainJob:
		runtime, err := runtimeOf(ctx, reader, read)
		if err != nil {
			return nil, err
		}
		return job.FromTrainJob(read, runtime, defaults), nil
	default:
		panic(fmt.Sprintf("%T is no job", view.Object))
	}
}

// errNoRuntime: the runtime that a TrainJob names is not there.
var errNoRuntime = errors.New("the job's runtime is not there")

func runtimeOf(ctx context.Context, reader client.Reader, trainJob *v2alpha1.TrainJob) (*v2alpha1.TrainingRuntimeSpec, error) {
	ref := &trainJob.Spec.RuntimeRef
	var err error
	var spec *v2alpha1.TrainingRuntimeSpec
	if ref.Kind == v2alpha1.RuntimeKindNamespaced {
		var runtime v2alpha1.TrainingRuntime
		err, spec = reader.Get(ctx, client.ObjectKey{Namespace: trainJob.Namespace, Name: ref.Name}, &runtime), &runtime.Spec
	} else {
		var runtime v2alpha1.ClusterTrainingRuntime
		err, spec = reader.Get(ctx, client.ObjectKey{Name: ref.Name}, &runtime), &runtime.Spec
	}
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s %s", errNoRuntime, ref.Kind, ref.Name)
	}
	return spec, err
}

// identity is as much of the model as finds the job's pods; no runtime is needed.
func (view *view) identity() *job.Job {
	made := &job.Job{Kind: view.kind.Kind, Namespace: view.GetNamespace(), Name: view.GetName(), UID: view.GetUID()}
	var ready int32
	if _, err := fmt.Sscanf(view.workers(), "%d/%d", &ready, &made.Worker.Replicas); err != nil {
		made.Worker.Replicas = 0
	}
	return made
}
