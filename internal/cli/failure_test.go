// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/internal/engine/quota"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// Several errors with the same exit code keep that code.
func TestSeveralErrors(t *testing.T) {
	missing := func(name string) error {
		return apierrors.NewNotFound(schema.GroupResource{Group: "kubeflow.org", Resource: "trainjobs"}, name)
	}
	tests := map[string]struct {
		errors []error
		want   int
	}{
		"none":      {nil, exitOK},
		"one":       {[]error{missing("a")}, exitNotFound},
		"alike":     {[]error{missing("a"), missing("b")}, exitNotFound},
		"different": {[]error{missing("a"), context.DeadlineExceeded, missing("b")}, exitError},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := (&environment{calledAs: "odh"}).joinFailures(test.errors, "deleted")
			if err == nil && test.want == exitOK {
				return
			}
			if got := explain(err, "odh"); got.code != test.want || len(got.details) != len(test.errors) {
				t.Errorf("exit code %d, want %d; details %q", got.code, test.want, got.details)
			}
		})
	}
}

// Only the type of a cause says that it is a quota; messages may change.
func TestQuotaRefusalOfAdmission(t *testing.T) {
	path := field.NewPath("spec", "trainer", "numNodes")
	exceeds := field.Forbidden(path, "too large").WithOrigin(string(quota.CauseExceeded))
	for name, test := range map[string]struct {
		faults field.ErrorList
		want   int
	}{
		"a quota":                  {field.ErrorList{exceeds}, exitQuota},
		"a quota and another":      {field.ErrorList{exceeds, field.Required(path, "")}, exitError},
		"only the text of a quota": {field.ErrorList{field.Forbidden(path, "Insufficient namespace quota")}, exitError},
	} {
		if got := explain((&validation.Findings{Errors: test.faults}).Invalid(schema.GroupKind{Kind: "TrainJob"}, "a"), "odh"); got.code != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got.code, test.want)
		}
	}
}

// The cluster lists rules that it did not evaluate. They are not errors of the job.
func TestRefusalsWithoutNoise(t *testing.T) {
	refusal := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
		{Field: "spec.runtimeRef.kind", Message: "Required value"}, {Field: "<nil>", Message: "some validation rules were not checked"},
	}}}}
	if got := explain(refusal, "odh"); !slices.Equal(got.details, []string{"spec.runtimeRef.kind: Required value"}) {
		t.Errorf("details %q", got.details)
	}
	if got := explain(errors.New("something"), "odh"); got.code != exitError {
		t.Errorf("exit code %d", got.code)
	}
}
