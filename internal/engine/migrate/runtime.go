// SPDX-License-Identifier: Apache-2.0

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

// sameRuntime returns an existing runtime with which the TrainJob is the same as with
// its own; nil if there is none.
func (m *migration) sameRuntime() *v2alpha1.ClusterTrainingRuntime {
	want := modelOf(m.trainJob, &m.runtime.Spec, m.rules.Defaults)
	for i := range m.options.Runtimes {
		runtime := &m.options.Runtimes[i]
		// Its constraints would apply to the job.
		if runtime.Spec.Constraints != nil {
			continue
		}
		if equality.Semantic.DeepEqual(want, modelOf(m.trainJob, &runtime.Spec, m.rules.Defaults)) {
			return runtime
		}
	}
	return nil
}

// modelOf returns the model of a TrainJob with a runtime, without what does not matter:
// the names of the main containers, and the annotation that disables Istio.
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

// inRuntime changes the report to the existing runtime that is used instead of a new
// one.
func (m *migration) inRuntime(ref *v2alpha1.RuntimeRef) {
	for i := range m.report.Entries {
		entry := &m.report.Entries[i]
		if path, moved := strings.CutPrefix(entry.To, "TrainingRuntime "); moved {
			entry.To = string(ref.Kind) + " " + path
			if entry.Outcome == Moved && entry.Why == "" {
				entry.Why = ref.Name + " has the same"
			}
			entry.rewritten = true
		}
	}
}

// refusals applies the admission rules to the result, and reports errors for the user to
// review.
func (m *migration) refusals() {
	for _, fault := range m.rules.Runtime(&m.runtime.Spec, 0).Errors {
		m.refuse("TrainingRuntime", fault)
	}
	in := m.anywhere()
	in.Runtime = &m.runtime.Spec
	trainJob := m.trainJob.DeepCopy()
	if trainJob.Name == "" {
		// As long as the name that the API server generates.
		trainJob.Name = trainJob.GenerateName + "xxxxx"
	}
	before := m.faultsBefore()
	for _, fault := range m.rules.CreateTrainJob(trainJob, in).Errors {
		if !before[fault.Detail] {
			m.refuse("TrainJob", fault)
		}
	}
}

// anywhere returns a cluster without restrictions, because the real one is not known.
func (m *migration) anywhere() *validation.ClusterFacts {
	return &validation.ClusterFacts{HasPriorityClass: func(string) bool { return true }, AnyNodeHas: func(corev1.ResourceName) bool { return true }}
}

// faultsBefore returns the errors of the MPIJob, although the cluster has accepted it.
func (m *migration) faultsBefore() map[string]bool {
	faults := map[string]bool{}
	if m.options.Accepted {
		for _, fault := range m.rules.CreateMPIJob(m.old, m.anywhere()).Errors {
			faults[fault.Detail] = true
		}
	}
	return faults
}

// refuse reports an error at the field that caused it.
func (m *migration) refuse(kind string, fault *field.Error) {
	why := refusedPrefix + fault.ErrorBody()
	at := kind + " " + fault.Field
	for i := range m.report.Entries {
		entry := &m.report.Entries[i]
		if entry.To == "" || entry.Outcome == Default || !isBelow(at, entry.To) && !isBelow(entry.To, at) {
			continue
		}
		if entry.Outcome != Review {
			entry.Outcome, entry.Why = Review, why
		} else {
			entry.Why += "; " + why
		}
		return
	}
	m.add(Entry{Outcome: Review, To: at, Why: why})
}
