// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// invalid is an error of the client with a complete message.
func invalid(field, message string) error {
	return &apierror.Error{Code: http.StatusBadRequest, Reason: "BadRequest", Message: message, Details: []apierror.Detail{{Field: field, Reason: message}}}
}

// nameField is a field of a request that holds a name.
type nameField struct {
	field, value string
	optional     bool
}

// checkNames refuses invalid names before they become part of a URL.
func checkNames(names ...nameField) error {
	for _, name := range names {
		if name.value == "" && name.optional {
			continue
		}
		if name.value == "" {
			return invalid(name.field, name.field+" is required")
		}
		if faults := validation.IsDNS1123Subdomain(name.value); len(faults) > 0 {
			return apierror.Invalid(name.field, "%q is not a valid name: %s", name.value, faults[0])
		}
	}
	return nil
}

// jobRequest is a request about one job.
type jobRequest interface {
	GetNamespace() string
	GetName() string
}

// jobRef returns the job of a request.
func jobRef(kind *jobview.Kind, request jobRequest) (jobservice.JobRef, error) {
	ref := jobservice.JobRef{Kind: kind, Namespace: request.GetNamespace(), Name: request.GetName()}
	return ref, checkNames(nameField{field: "namespace", value: ref.Namespace}, nameField{field: "name", value: ref.Name})
}

// kindOf returns a kind by its name.
func kindOf(name string) (*jobview.Kind, error) {
	var names []string
	for _, kind := range jobview.Kinds {
		if string(kind.Kind) == name {
			return kind, nil
		}
		names = append(names, fmt.Sprintf("'%s'", kind.Kind))
	}
	if name == "" {
		return nil, invalid("kind", "kind is required")
	}
	return nil, invalid("kind", "kind must be "+strings.Join(names, " or "))
}

// listRequest is a request for a list of jobs.
type listRequest interface {
	GetNamespace() string
	GetAllNamespaces() bool
	GetLabelSelector() string
	GetStatus() string
	GetNameContains() string
	GetSort() string
	GetLimit() int32
	GetContinueToken() string
}

// pageBytes is the maximum size of a page: gRPC clients accept messages of up to 4 MiB by
// default.
const pageBytes = 3 << 20

func listQuery(request listRequest) (jobwatch.Query, error) {
	query := jobwatch.Query{
		Namespace: request.GetNamespace(), Status: request.GetStatus(), Name: request.GetNameContains(),
		Sort: request.GetSort(), Limit: int(request.GetLimit()), Continue: request.GetContinueToken(), Whole: true, Bytes: pageBytes,
	}
	if request.GetAllNamespaces() && query.Namespace != "" {
		return query, invalid("all_namespaces", "namespace and all_namespaces cannot both be set")
	}
	if err := checkNames(nameField{field: "namespace", value: query.Namespace, optional: request.GetAllNamespaces()}); err != nil {
		return query, err
	}
	if query.Limit < 0 {
		return query, apierror.Invalid("limit", "must be from 1 to %d", jobwatch.MaxLimit)
	}
	// A misspelt status must not return an empty list.
	if query.Status != "" && !slices.Contains(jobview.States, query.Status) {
		return query, apierror.Invalid("status", "%q is not one of %s", query.Status, strings.Join(jobview.States, ", "))
	}
	selector, err := labels.Parse(request.GetLabelSelector())
	if err != nil {
		return query, apierror.Invalid("label_selector", "%v", err)
	}
	query.Labels = selector
	return query, nil
}
