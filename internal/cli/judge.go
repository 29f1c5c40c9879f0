package cli

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// judge asks admission's own rules about a job, as far as they need no cluster.
// Limits are each platform's own: what only exceeds those that Trireme comes with is
// a warning.
func (environment *environment) judge(object *unstructured.Unstructured, kind *kind) error {
	typed := kind.NewObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return err
	}
	if typed.GetName() == "" && typed.GetGenerateName() != "" {
		typed.SetName(typed.GetGenerateName() + "xxxxx") // As long as the cluster will make it.
	}
	usual, generous := config.Default(), config.Default()
	generous.Limits = config.Limits{
		MaxNodes: math.MaxInt32, MaxWorkers: math.MaxInt32, MaxSlots: config.MaxSlots{TrainJob: math.MaxInt32, MPIJob: math.MaxInt32}, MaxGPUs: math.MaxInt32,
		ManyGPUs: math.MaxInt32, MaxScheduleTimeoutSeconds: math.MaxInt32, MaxEnv: math.MaxInt32, MaxBytes: math.MaxInt32,
	}
	faults, _ := faultsOf(typed, generous)
	exceeded, warnings := faultsOf(typed, usual)
	for _, fault := range exceeded {
		if !slices.Contains(faults, fault) {
			warnings = append(warnings, fault+" (unless the cluster has other limits)")
		}
	}
	for _, warning := range warnings {
		environment.warnings.HandleWarningHeader(warningCode, "", warning)
	}
	if len(faults) == 0 {
		return nil
	}
	return &failure{code: exitError, message: fmt.Sprintf("%s %q would be refused", kind.Kind, typed.GetName()), reason: "Invalid", page: "jobs.md", details: faults,
		suggestions: []string{"Correct what the details name, and try again"}}
}

// faultsOf is what a configuration's rules have against a job, wherever it will run.
func faultsOf(typed client.Object, configuration *config.Config) (faults, warnings []string) {
	rules := validation.NewRules(configuration, false)
	anywhere := &validation.Surroundings{HasPriorityClass: func(string) bool { return true }}
	var found *validation.Findings
	switch read := typed.(type) {
	case *v2alpha1.TrainJob:
		found = rules.CreateTrainJob(read, anywhere)
	case *v2beta1.MPIJob:
		found = rules.CreateMPIJob(read, anywhere)
	}
	for _, fault := range found.Errors {
		// Whether there is such a runtime, only the cluster knows.
		if fault.Field != "spec.runtimeRef.name" {
			faults = append(faults, fault.Error())
		}
	}
	return faults, found.WarningTexts()
}
