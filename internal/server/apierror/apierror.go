// SPDX-License-Identifier: Apache-2.0

// Package apierror has the errors that clients get, in the same form over REST, gRPC and
// streams.
package apierror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/internal/engine/quota"
)

// Error says what happened, to which object, and what to do.
type Error struct {
	// Code is the HTTP status code.
	Code int `json:"code"`
	// Reason for programs, in CamelCase: NotFound, Forbidden, Invalid.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Details are the invalid fields.
	Details []Detail `json:"details"`
	// Suggestions say what to do.
	Suggestions []string `json:"suggestions"`
}

// Detail is one invalid field.
type Detail struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

func (e *Error) Error() string { return e.Message }

// MarshalJSON writes empty lists, not null, and adds the message as "error", where older
// clients expect it.
func (e *Error) MarshalJSON() ([]byte, error) {
	type bare Error
	fields := bare(*e)
	if fields.Details == nil {
		fields.Details = []Detail{}
	}
	if fields.Suggestions == nil {
		fields.Suggestions = []string{}
	}
	return json.Marshal(struct {
		bare
		Again string `json:"error"`
	}{fields, e.Message})
}

// New returns an error with a complete message.
func New(code int, reason, message string, suggestions ...string) *Error {
	return &Error{Code: code, Reason: reason, Message: message, Suggestions: suggestions}
}

// Invalid returns an error of the client about one field.
func Invalid(field, format string, arguments ...any) *Error {
	message := fmt.Sprintf(format, arguments...)
	return &Error{Code: http.StatusBadRequest, Reason: "BadRequest", Message: field + ": " + message, Details: []Detail{{Field: field, Reason: message}}}
}

// From converts any error. Errors of the API server keep their code; unexpected errors
// become internal errors, whose text is not for clients.
func From(err error) *Error {
	if known, is := errors.AsType[*Error](err); is {
		return known
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return fromStatus(status.Status())
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return New(http.StatusGatewayTimeout, "Timeout", "The API server did not respond in time", "Retry; use filters or a smaller limit if the list is large")
	case errors.Is(err, context.Canceled):
		return New(statusClientClosed, "Canceled", "The client closed the connection")
	}
	if _, is := errors.AsType[*url.Error](err); is {
		return New(http.StatusServiceUnavailable, "ServiceUnavailable", "The Kubernetes API server cannot be reached", "Retry in a few seconds")
	}
	return New(http.StatusInternalServerError, "InternalError", "Internal server error; the server log has the cause", "Retry, and report it to the cluster administrator if it persists")
}

// statusClientClosed is the code that proxies log for a client that disconnected.
const statusClientClosed = 499

// fromStatus converts a response of the API server.
func fromStatus(status metav1.Status) *Error {
	apiErr := &Error{Code: int(status.Code), Reason: string(status.Reason), Message: status.Message}
	if apiErr.Code == 0 {
		apiErr.Code = http.StatusInternalServerError
	}
	if apiErr.Code == http.StatusInternalServerError && isTooLarge(status.Message) {
		return New(http.StatusRequestEntityTooLarge, string(metav1.StatusReasonRequestEntityTooLarge), "The job is too large for the cluster to store",
			"Remove what is not part of the job; keep data in a ConfigMap or a volume")
	}
	if apiErr.Reason == "" {
		apiErr.Reason = strings.ReplaceAll(http.StatusText(apiErr.Code), " ", "")
	}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			apiErr.Details = append(apiErr.Details, Detail{Field: cause.Field, Reason: cause.Message})
		}
	}
	apiErr.Suggestions = suggestionsFor(apiErr, status.Details)
	return apiErr
}

// isTooLarge tells whether etcd, or its client, refused an object because of its size. The
// API server only reports an internal error.
func isTooLarge(message string) bool {
	return strings.Contains(message, "etcdserver: request is too large") || strings.Contains(message, "trying to send message larger than max")
}

func suggestionsFor(apiErr *Error, details *metav1.StatusDetails) []string {
	switch apiErr.Code {
	case http.StatusUnauthorized:
		return []string{"Get a new token, and send it as Authorization: Bearer TOKEN"}
	case http.StatusForbidden:
		// Admission uses the same code as missing permissions.
		if _, exceeded := quota.ParseExceeded(apiErr.Message); exceeded {
			return []string{"Request fewer resources, or wait until other jobs in the namespace finish"}
		}
		if strings.Contains(apiErr.Message, " cannot ") {
			return []string{"Ask a namespace admin for the permission"}
		}
	case http.StatusNotFound:
		if details != nil && details.Name != "" {
			return []string{fmt.Sprintf("List the existing %s", details.Kind)}
		}
	case http.StatusConflict:
		if apiErr.Reason == string(metav1.StatusReasonAlreadyExists) {
			return []string{"Choose another name, or delete the existing object"}
		}
		return []string{"Another client changed the object: read it again and retry"}
	case http.StatusTooManyRequests:
		return []string{"Wait a moment and retry"}
	}
	return nil
}
