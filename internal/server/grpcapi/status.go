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

// grpcCodes are gRPC's codes of those of HTTP.
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

// clientClosed is what problem says of a client that went away.
const clientClosed = 499

// What goes into trailers, which clients of gRPC take no more than 8 KiB of if they
// are not told otherwise.
const (
	mostMessage = 1500
	mostReason  = 150
	mostFields  = 10
)

// Status is an error as clients of gRPC see it: a code, a message, and as details the
// reason in one word, the fields that are wrong and what to do.
func Status(err error) error {
	if _, is := status.FromError(err); is {
		return err
	}
	told := apierror.From(err)
	made := status.New(codeOf(told), shortened(told.Message, mostMessage))
	detailed, failed := made.WithDetails(detailsOf(told)...)
	if failed != nil {
		return made.Err()
	}
	return detailed.Err()
}

func codeOf(told *apierror.Error) codes.Code {
	code, known := grpcCodes[told.Code]
	switch {
	case told.Code == http.StatusConflict && told.Reason == "AlreadyExists":
		return codes.AlreadyExists
	// The request is well, but the job is not as it must be for it.
	case told.Code == http.StatusConflict && told.Reason != "Conflict", told.Code == http.StatusBadRequest && told.Reason != "BadRequest":
		return codes.FailedPrecondition
	case known:
		return code
	case told.Code >= http.StatusBadRequest && told.Code < http.StatusInternalServerError:
		return codes.FailedPrecondition
	default:
		return codes.Internal
	}
}

func detailsOf(told *apierror.Error) []protoadapt.MessageV1 {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: told.Reason, Domain: training.Group}}
	if len(told.Details) > 0 {
		fields := &errdetails.BadRequest{}
		for _, detail := range told.Details[:min(len(told.Details), mostFields)] {
			fields.FieldViolations = append(fields.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: shortened(detail.Field, mostReason), Description: shortened(detail.Reason, mostReason),
			})
		}
		details = append(details, fields)
	}
	if len(told.Suggestions) > 0 {
		help := &errdetails.Help{}
		for _, suggestion := range told.Suggestions[:min(len(told.Suggestions), mostFields)] {
			help.Links = append(help.Links, &errdetails.Help_Link{Description: shortened(suggestion, mostReason)})
		}
		details = append(details, help)
	}
	return details
}

// shortened is a text of at most so many bytes, in UTF-8 that holds.
func shortened(text string, most int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= most {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
