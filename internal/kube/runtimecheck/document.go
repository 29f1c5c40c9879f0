// SPDX-License-Identifier: Apache-2.0

package runtimecheck

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
)

// Fault is an error or a warning about a field of a runtime.
type Fault struct {
	// Line of the field in a file, if it is known.
	Line    int    `json:"line,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// Findings are the errors and warnings of a document.
type Findings struct {
	Kind     string  `json:"kind,omitempty"`
	Name     string  `json:"name,omitempty"`
	Errors   []Fault `json:"errors"`
	Warnings []Fault `json:"warnings"`
}

// Document checks a runtime in JSON as the cluster would with the operator's default limits,
// and finds likely mistakes. It needs no cluster.
func Document(document []byte) Findings {
	var about struct {
		metav1.TypeMeta
		Metadata struct{ Name string }
	}
	_ = json.Unmarshal(document, &about)
	found := Findings{Kind: about.Kind, Name: about.Metadata.Name, Errors: []Fault{}, Warnings: []Fault{}}
	refuse := func(field, message string) {
		found.Errors = append(found.Errors, Fault{Field: field, Message: message})
	}
	isRuntime := about.Kind == string(v2alpha1.RuntimeKindNamespaced) || about.Kind == string(v2alpha1.RuntimeKindCluster)
	if !isRuntime || about.APIVersion != v2alpha1.GroupVersion.String() {
		refuse("kind", fmt.Sprintf("is %s of %s instead of TrainingRuntime or ClusterTrainingRuntime of %s", cmp.Or(about.Kind, "-"), cmp.Or(about.APIVersion, "-"), v2alpha1.GroupVersion))
		return found
	}
	if huge, is := errors.AsType[*job.QuantityError](job.CheckQuantities(document)); is {
		refuse(huge.Field, huge.Reason())
		return found
	}
	// Both scopes have the same spec.
	runtime := &v2alpha1.TrainingRuntime{}
	unknown, err := kjson.UnmarshalStrict(document, runtime)
	if err != nil {
		refuse("", err.Error())
		return found
	}
	for _, fault := range unknown {
		refuse(unknownField(fault), "unknown field")
	}
	if runtime.Name == "" && runtime.GenerateName == "" {
		refuse("metadata.name", "Required value: a runtime must have a name")
	}
	findings := preflight.Runtime(&runtime.Spec, len(document))
	for _, fault := range findings.Errors {
		refuse(fault.Field, fault.ErrorBody())
	}
	for _, warning := range findings.Warnings {
		found.Warnings = append(found.Warnings, Fault{Field: warning.Field, Message: warning.Message})
	}
	return found
}

// unknownField returns the path in an error of the decoder: unknown field "spec.a".
func unknownField(fault error) string {
	if _, quoted, found := strings.Cut(fault.Error(), `"`); found {
		return strings.TrimSuffix(quoted, `"`)
	}
	return fault.Error()
}
