package cli

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/config"
	"github.com/trireme-mpi/trireme/internal/validation"
)

// judge asks admission's own rules about a job, as far as they need no cluster. The
// limits are those that Trireme comes with; a cluster may have others.
func (environment *environment) judge(object *unstructured.Unstructured, kind *kind) error {
	typed := kind.newObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return err
	}
	if typed.GetName() == "" && typed.GetGenerateName() != "" {
		typed.SetName(typed.GetGenerateName() + "xxxxx") // As long as the cluster will make it.
	}
	rules := validation.NewRules(config.Default(), false)
	anywhere := &validation.Surroundings{HasPriorityClass: func(string) bool { return true }}
	var found *validation.Findings
	switch read := typed.(type) {
	case *v2alpha1.TrainJob:
		found = rules.CreateTrainJob(read, anywhere)
	case *v2beta1.MPIJob:
		found = rules.CreateMPIJob(read, anywhere)
	}
	for _, warning := range found.Warnings {
		environment.warnings.HandleWarningHeader(warningCode, "", warning)
	}
	// Whether there is such a runtime, only the cluster knows.
	faults := slices.DeleteFunc(found.Errors, func(fault *field.Error) bool { return fault.Field == "spec.runtimeRef.name" })
	if len(faults) == 0 {
		return nil
	}
	refused := &failure{code: exitError, message: string(kind.Kind) + " " + quoted(object) + " would be refused", reason: "Invalid", page: "jobs.md",
		suggestions: []string{"Correct what the details name, and try again"}}
	for _, fault := range faults {
		refused.details = append(refused.details, fault.Error())
	}
	return refused
}

func quoted(object *unstructured.Unstructured) string {
	return `"` + orElse(object.GetName(), object.GetGenerateName()) + `"`
}
