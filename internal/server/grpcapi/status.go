// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// grpcCodes maps HTTP status codes to gRPC codes.
var grpcCodes = map[int]codes.Code{
	http.StatusBadRequest:            codes.InvalidArgument,
	http.StatusUnauthorized:          codes.Unauthenticated,
	http.StatusForbidden:             codes.PermissionDenied,
	http.StatusNotFound:              codes.NotFound,
	http.StatusMethodNotAllowed:      codes.Unimplemented,
	http.StatusRequestTimeout:        codes.DeadlineExceeded,
	http.StatusConflict:              codes.Aborted,
	http.StatusGone:                  codes.OutOfRange,
	http.StatusPreconditionFailed:    codes.FailedPrecondition,
	http.StatusRequestEntityTooLarge: codes.ResourceExhausted,
	http.StatusUnprocessableEntity:   codes.InvalidArgument,
	http.StatusTooManyRequests:       codes.ResourceExhausted,
	clientClosed:                     codes.Canceled,
	http.StatusInternalServerError:   codes.Internal,
	http.StatusNotImplemented:        codes.Unimplemented,
	http.StatusBadGateway:            codes.Unavailable,
	http.StatusServiceUnavailable:    codes.Unavailable,
	http.StatusGatewayTimeout:        codes.DeadlineExceeded,
}

// clientClosed is the code that apierror uses for a client that disconnected.
const clientClosed = 499

// Limits for the trailers: gRPC clients accept at most 8 KiB by default.
const (
	maxMessage = 1500
	maxReason  = 150
	maxFields  = 10
)

// Status converts an error to a gRPC status: code, message, and as details the reason, the
// invalid fields and the suggestions.
func Status(err error) error {
	if _, is := status.FromError(err); is {
		return err
	}
	apiErr := apierror.From(err)
	st := status.New(codeOf(apiErr), truncate(apiErr.Message, maxMessage))
	detailed, detailsErr := st.WithDetails(detailsOf(apiErr)...)
	if detailsErr != nil {
		return st.Err()
	}
	return detailed.Err()
}

func codeOf(apiErr *apierror.Error) codes.Code {
	code, known := grpcCodes[apiErr.Code]
	switch {
	case apiErr.Code == http.StatusConflict && apiErr.Reason == "AlreadyExists":
		return codes.AlreadyExists
	// The request is valid, but the job is not in the required state.
	case apiErr.Code == http.StatusConflict && apiErr.Reason != "Conflict", apiErr.Code == http.StatusBadRequest && apiErr.Reason != "BadRequest":
		return codes.FailedPrecondition
	case known:
		return code
	case apiErr.Code >= http.StatusBadRequest && apiErr.Code < http.StatusInternalServerError:
		return codes.FailedPrecondition
	default:
		return codes.Internal
	}
}

func detailsOf(apiErr *apierror.Error) []protoadapt.MessageV1 {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: apiErr.Reason, Domain: training.Group}}
	if len(apiErr.Details) > 0 {
		fields := &errdetails.BadRequest{}
		for _, detail := range apiErr.Details[:min(len(apiErr.Details), maxFields)] {
			fields.FieldViolations = append(fields.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: truncate(detail.Field, maxReason), Description: truncate(detail.Reason, maxReason),
			})
		}
		details = append(details, fields)
	}
	if len(apiErr.Suggestions) > 0 {
		help := &errdetails.Help{}
		for _, suggestion := range apiErr.Suggestions[:min(len(apiErr.Suggestions), maxFields)] {
			help.Links = append(help.Links, &errdetails.Help_Link{Description: truncate(suggestion, maxReason)})
		}
		details = append(details, help)
	}
	return details
}

// truncate cuts a text to a number of bytes, and keeps it valid UTF-8.
func truncate(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:limit-len(more)], "") + more
}
