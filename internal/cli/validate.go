// SPDX-License-Identifier: Apache-2.0

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

// validate applies the rules of admission that need no cluster. Clusters may set other
// limits than the defaults, so exceeding only a default limit is a warning.
func (e *environment) validate(object *unstructured.Unstructured, kind *kind) error {
	typed := kind.NewObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return err
	}
	if typed.GetName() == "" && typed.GetGenerateName() != "" {
		typed.SetName(typed.GetGenerateName() + "xxxxx") // The cluster appends as many characters.
	}
	defaults, unlimited := config.Default(), config.Default()
	unlimited.Limits = config.Limits{
		MaxNodes: math.MaxInt32, MaxWorkers: math.MaxInt32, MaxSlots: config.MaxSlots{TrainJob: math.MaxInt32, MPIJob: math.MaxInt32}, MaxGPUs: math.MaxInt32,
		ManyGPUs: math.MaxInt32, MaxScheduleTimeoutSeconds: math.MaxInt32, MaxEnv: math.MaxInt32, MaxBytes: math.MaxInt32,
	}
	faults, _ := faultsOf(typed, unlimited)
	exceeded, warnings := faultsOf(typed, defaults)
	for _, fault := range exceeded {
		if !slices.Contains(faults, fault) {
			warnings = append(warnings, fault+" (unless the limits of the cluster differ)")
		}
	}
	for _, warning := range warnings {
		e.warnings.HandleWarningHeader(warningCode, "", warning)
	}
	if len(faults) == 0 {
		return nil
	}
	return &failure{code: exitError, message: fmt.Sprintf("%s %q would be refused", kind.Kind, typed.GetName()), reason: "Invalid", page: "jobs.md", details: faults,
		suggestions: []string{"Fix the fields listed under Details and retry"}}
}

// faultsOf applies the rules of a configuration to a job, in any namespace.
func faultsOf(typed client.Object, configuration *config.Config) (faults, warnings []string) {
	rules := validation.NewRules(configuration, false)
	anywhere := &validation.ClusterFacts{HasPriorityClass: func(string) bool { return true }}
	var findings *validation.Findings
	switch j := typed.(type) {
	case *v2alpha1.TrainJob:
		findings = rules.CreateTrainJob(j, anywhere)
	case *v2beta1.MPIJob:
		findings = rules.CreateMPIJob(j, anywhere)
	}
	for _, fault := range findings.Errors {
		// Only the cluster knows whether the runtime exists.
		if fault.Field != "spec.runtimeRef.name" {
			faults = append(faults, fault.Error())
		}
	}
	return faults, findings.WarningTexts()
}
