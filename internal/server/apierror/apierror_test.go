// SPDX-License-Identifier: Apache-2.0

package apierror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestFrom(t *testing.T) {
	jobs := schema.GroupResource{Group: "kubeflow.org", Resource: "mpijobs"}
	refused := errors.New(`User "jane" cannot create resource "mpijobs"`)
	tests := map[string]struct {
		err  error
		want Error
	}{
		"one of ours": {New(418, "Teapot", "It is one"), Error{Code: 418, Reason: "Teapot", Message: "It is one"}},
		"one of ours, wrapped": {
			fmt.Errorf("ask: %w", Invalid("name", "is %q", "x")),
			Error{Code: 400, Reason: "BadRequest", Message: `name: is "x"`, Details: []Detail{{"name", `is "x"`}}},
		},
		"not there": {
			apierrors.NewNotFound(jobs, "train"),
			Error{Code: 404, Reason: "NotFound", Message: `mpijobs.kubeflow.org "train" not found`, Suggestions: []string{"List the existing mpijobs"}},
		},
		"there already": {
			apierrors.NewAlreadyExists(jobs, "train"),
			Error{Code: 409, Reason: "AlreadyExists", Message: `mpijobs.kubeflow.org "train" already exists`, Suggestions: []string{"Choose another name, or delete the existing object"}},
		},
		"no right": {
			apierrors.NewForbidden(jobs, "train", refused),
			Error{
				Code: 403, Reason: "Forbidden", Message: `mpijobs.kubeflow.org "train" is forbidden: ` + refused.Error(),
				Suggestions: []string{"Ask a namespace admin for the permission"},
			},
		},
		"no quota": {
			apierrors.NewForbidden(jobs, "train", errors.New("exceeded quota: gpus")),
			Error{
				Code: 403, Reason: "Forbidden", Message: `mpijobs.kubeflow.org "train" is forbidden: exceeded quota: gpus`,
				Suggestions: []string{"Request fewer resources, or wait until other jobs in the namespace finish"},
			},
		},
		"fields that are wrong": {
			apierrors.NewInvalid(schema.GroupKind{Group: "kubeflow.org", Kind: "MPIJob"}, "train", field.ErrorList{field.Required(field.NewPath("spec"), "")}),
			Error{Code: 422, Reason: "Invalid", Message: `MPIJob.kubeflow.org "train" is invalid: spec: Required value`, Details: []Detail{{"spec", "Required value"}}},
		},
		"too large for etcd": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "etcdserver: request is too large"}},
			Error{
				Code: 413, Reason: "RequestEntityTooLarge", Message: "The job is too large for the cluster to store",
				Suggestions: []string{"Remove what is not part of the job; keep data in a ConfigMap or a volume"},
			},
		},
		"no reason": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "rpc error"}}, Error{Code: 500, Reason: "InternalServerError", Message: "rpc error"},
		},
		"no code": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Message: "nothing"}}, Error{Code: 500, Reason: "InternalServerError", Message: "nothing"},
		},
		"too slow": {
			&url.Error{Op: "Get", URL: "https://10.0.0.1", Err: context.DeadlineExceeded},
			Error{Code: 504, Reason: "Timeout", Message: "The API server did not respond in time", Suggestions: []string{"Retry; use filters or a smaller limit if the list is large"}},
		},
		"nobody waits": {context.Canceled, Error{Code: 499, Reason: "Canceled", Message: "The client closed the connection"}},
		"nobody is there": {
			&url.Error{Op: "Get", URL: "https://10.0.0.1", Err: errors.New("connection refused")},
			Error{Code: 503, Reason: "ServiceUnavailable", Message: "The Kubernetes API server cannot be reached", Suggestions: []string{"Retry in a few seconds"}},
		},
		"what nobody foresaw": {
			errors.New("the password is hunter2"),
			Error{Code: 500, Reason: "InternalError", Message: "Internal server error; the server log has the cause", Suggestions: []string{"Retry, and report it to the cluster administrator if it persists"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if difference := cmp.Diff(&test.want, From(test.err)); difference != "" {
				t.Error(difference)
			}
		})
	}
}

// Empty lists are not null, and the message is also where older clients expect it.
func TestJSON(t *testing.T) {
	encoded, err := json.Marshal(New(http.StatusConflict, "Finished", "It has ended"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"code":409,"reason":"Finished","message":"It has ended","details":[],"suggestions":[],"error":"It has ended"}`
	if string(encoded) != want {
		t.Errorf("%s, want %s", encoded, want)
	}
}
