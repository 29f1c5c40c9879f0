// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"context"
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// The server's own identity and permissions are only for its log.
func TestServerErrorsAreHidden(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "kubeflow.org", Resource: "mpijobs"}, "", errors.New(`User "the-server" cannot list`))
	for name, test := range map[string]struct {
		err  error
		code int
	}{
		"not allowed":   {forbidden, http.StatusServiceUnavailable},
		"not reachable": {errors.New("connection refused"), http.StatusServiceUnavailable},
		"too old":       {tooOld(), http.StatusGone},
		"too late":      {context.DeadlineExceeded, http.StatusGatewayTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			if told := apierror.From(hideServerError(test.err)); told.Code != test.code {
				t.Errorf("%d, want %d: %s", told.Code, test.code, told.Message)
			}
		})
	}
	if told := apierror.From(clientError(forbidden)); told.Code != http.StatusForbidden {
		t.Errorf("what a client may not do itself is told as %d", told.Code)
	}
}
