// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

func TestStatusCode(t *testing.T) {
	resource := schema.GroupResource{Group: "kubeflow.org", Resource: "mpijobs"}
	for name, test := range map[string]struct {
		err  error
		want codes.Code
	}{
		"a field that is wrong":                 {apierror.Invalid("a", "b"), codes.InvalidArgument},
		"nobody":                                {apierror.New(http.StatusUnauthorized, "Unauthorized", ""), codes.Unauthenticated},
		"no right":                              {apierrors.NewForbidden(resource, "pi", errors.New("no")), codes.PermissionDenied},
		"not there":                             {apierrors.NewNotFound(resource, "pi"), codes.NotFound},
		"there already":                         {apierrors.NewAlreadyExists(resource, "pi"), codes.AlreadyExists},
		"changed meanwhile":                     {apierrors.NewConflict(resource, "pi", errors.New("changed")), codes.Aborted},
		"ended, so it cannot be stopped":        {apierror.New(http.StatusConflict, "Finished", ""), codes.FailedPrecondition},
		"not failed, so it cannot be restarted": {apierror.New(http.StatusBadRequest, "NotFailed", ""), codes.FailedPrecondition},
		"too old a version":                     {apierrors.NewResourceExpired("too old"), codes.OutOfRange},
		"refused by admission":                  {apierrors.NewInvalid(schema.GroupKind{Kind: "MPIJob"}, "pi", nil), codes.InvalidArgument},
		"too large":                             {apierrors.NewRequestEntityTooLargeError("too large"), codes.ResourceExhausted},
		"too many":                              {apierrors.NewTooManyRequests("slower", 1), codes.ResourceExhausted},
		"the client went away":                  {fmt.Errorf("reading: %w", context.Canceled), codes.Canceled},
		"too late":                              {fmt.Errorf("reading: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		"the cluster is too late":               {apierrors.NewTimeoutError("late", 1), codes.DeadlineExceeded},
		"the cluster cannot be reached":         {apierrors.NewServiceUnavailable("gone"), codes.Unavailable},
		"the cluster fails":                     {apierrors.NewInternalError(errors.New("x")), codes.Internal},
		"nobody knows":                          {errors.New("secret"), codes.Internal},
		"a code of the client's":                {apierror.New(http.StatusTeapot, "Teapot", ""), codes.FailedPrecondition},
		"a code of the server's":                {apierror.New(599, "Odd", ""), codes.Internal},
		"what gRPC itself says":                 {status.Error(codes.DataLoss, "x"), codes.DataLoss},
		"what gRPC itself says, wrapped":        {fmt.Errorf("sending: %w", status.Error(codes.DataLoss, "x")), codes.DataLoss},
	} {
		t.Run(name, func(t *testing.T) {
			if got := status.Code(Status(test.err)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
	if Status(nil) != nil {
		t.Error("no error became one")
	}
}

func TestStatusDetails(t *testing.T) {
	err := Status(&apierror.Error{
		Code: 422, Reason: "Invalid", Message: "no such job", Suggestions: []string{"Try this", "Or that"},
		Details: []apierror.Detail{{Field: "spec.a", Reason: "is wrong"}, {Field: "spec.b", Reason: "too"}},
	})
	got := status.Convert(err)
	if got.Message() != "no such job" {
		t.Errorf("got the message %q", got.Message())
	}
	want := []any{
		&errdetails.ErrorInfo{Reason: "Invalid", Domain: "kubeflow.org"},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "spec.a", Description: "is wrong"}, {Field: "spec.b", Description: "too"}}},
		&errdetails.Help{Links: []*errdetails.Help_Link{{Description: "Try this"}, {Description: "Or that"}}},
	}
	if diff := cmp.Diff(want, got.Details(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestUnexpectedErrorsAreHidden(t *testing.T) {
	if got := status.Convert(Status(errors.New("password=secret"))); strings.Contains(got.String(), "secret") {
		t.Errorf("got %s", got)
	}
}

// gRPC clients accept 8 KiB of trailers; details are base64 there, and a non-ASCII
// character of the message takes three times its size.
func TestStatusFitsIntoTrailers(t *testing.T) {
	huge := &apierror.Error{Code: 422, Reason: "Invalid", Message: strings.Repeat("message ", 1000)}
	for range 1000 {
		huge.Details = append(huge.Details, apierror.Detail{Field: strings.Repeat("x", 50), Reason: strings.Repeat("ä", 1000)})
		huge.Suggestions = append(huge.Suggestions, strings.Repeat("y", 50))
	}
	got := status.Convert(Status(huge))
	if size := len(got.Message()) + proto.Size(got.Proto())*4/3; size > 8<<10 {
		t.Errorf("the trailers have %d bytes", size)
	}
	for _, detail := range got.Details() {
		if fields, is := detail.(*errdetails.BadRequest); is && !utf8.ValidString(fields.FieldViolations[0].Description) {
			t.Error("a letter was cut in two")
		}
	}
}
