package migrate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// sameRuntime is a runtime that is there and makes the same of the TrainJob as
// its own would; nil if there is none.
func (migration *migration) sameRuntime() *v2alpha1.ClusterTrainingRuntime {
	want := modelOf(migration.trainJob, &migration.runtime.Spec, migration.rules.Defaults)
	for i := range migration.options.Runtimes {
		runtime := &migration.options.Runtimes[i]
		// Its limits would hold for the job from now on.
		if runtime.Spec.Constraints != nil {
			continue
		}
		if equality.Semantic.DeepEqual(want, modelOf(migration.trainJob, &runtime.Spec, migration.rules.Defaults)) {
			return runtime
		}
	}
	return nil
}

// modelOf is what a TrainJob and a runtime make together, without what has no
// meaning: how the main containers are called, and who says that Istio stays out.
func modelOf(trainJob *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec, defaults job.Defaults) *job.Job {
	model := job.FromTrainJob(trainJob, runtime, defaults)
	for _, role := range []*job.Role{&model.Launcher, &model.Worker} {
		if len(role.Template.Spec.Containers) > 0 {
			container := &role.Template.Spec.Containers[0]
			container.Name = ""
			if len(container.Command) > 0 {
				container.Command, container.Args = slices.Concat(container.Command, container.Args), nil
			}
		}
		delete(role.Template.Annotations, training.IstioInject)
	}
	return model
}

// inRuntime has the report name the runtime that was found instead of one that is
// not made.
func (migration *migration) inRuntime(ref *v2alpha1.RuntimeRef) {
	for i := range migration.report.Entries {
		entry := &migration.report.Entries[i]
		if path, moved := strings.CutPrefix(entry.To, "TrainingRuntime "); moved {
			entry.To = string(ref.Kind) + " " + path
			if entry.Outcome == Moved && entry.Why == "" {
				entry.Why = ref.Name + " has the same"
			}
			entry.rewritten = true
		}
	}
}

// refusals asks admission's own rules about the result. What they refuse, a
// person must look at.
func (migration *migration) refusals() {
	for _, fault := range migration.rules.Runtime(&migration.runtime.Spec, 0).Errors {
		migration.refuse("TrainingRuntime", fault)
	}
	in := migration.anywhere()
	in.Runtime = &migration.runtime.Spec
	trainJob := migration.trainJob.DeepCopy()
	if trainJob.Name == "" {
		// As the API server makes it.
		trainJob.Name = trainJob.GenerateName + "xxxxx"
	}
	before := migration.faultsBefore()
	for _, fault := range migration.rules.CreateTrainJob(trainJob, in).Errors {
		if !before[fault.Detail] {
			migration.refuse("TrainJob", fault)
		}
	}
}

// anywhere is a place that has nothing against a job: of the one that it will run
// in, nothing is known here.
func (migration *migration) anywhere() *validation.Surroundings {
	return &validation.Surroundings{HasPriorityClass: func(string) bool { return true }, AnyNodeHas: func(corev1.ResourceName) bool { return true }}
}

// faultsBefore are what the rules have against the MPIJob, although the cluster has
// accepted it.
func (migration *migration) faultsBefore() map[string]bool {
	faults := map[string]bool{}
	if migration.options.Accepted {
		for _, fault := range migration.rules.CreateMPIJob(migration.old, migration.anywhere()).Errors {
			faults[fault.Detail] = true
		}
	}
	return faults
}

// refuse has a person look at the field that caused a fault.
func (migration *migration) refuse(kind string, fault *field.Error) {
	why := "is refused like this: " + fault.ErrorBody()
	at := kind + " " + fault.Field
	for i := range migration.report.Entries {
		entry := &migration.report.Entries[i]
		if entry.To == "" || entry.Outcome == Default || !isBelow(at, entry.To) && !isBelow(entry.To, at) {
			continue
		}
		if entry.Outcome != Look {
			entry.Outcome, entry.Why = Look, why
		} else {
			entry.Why += "; " + why
		}
		return
	}
	migration.add(Entry{Outcome: Look, To: at, Why: why})
}
