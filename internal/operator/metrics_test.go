// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubernetestesting "k8s.io/client-go/testing"
)

// reviewer is an API server that answers token and access reviews, or fails.
type reviewer struct {
	authenticated, allowed  bool
	tokenFails, accessFails bool
	askedAbout              authorizationv1.SubjectAccessReviewSpec
}

func (r *reviewer) server() *fake.Clientset {
	server := fake.NewClientset()
	server.PrependReactor("create", "tokenreviews", func(action kubernetestesting.Action) (bool, runtime.Object, error) {
		if r.tokenFails {
			return true, nil, errors.New("down")
		}
		review := action.(kubernetestesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: r.authenticated && review.Spec.Token == "known", User: authenticationv1.UserInfo{
			Username: "prometheus", UID: "1", Groups: []string{"monitoring"}, Extra: map[string]authenticationv1.ExtraValue{"node": {"a"}},
		}}
		return true, review, nil
	})
	server.PrependReactor("create", "subjectaccessreviews", func(action kubernetestesting.Action) (bool, runtime.Object, error) {
		if r.accessFails {
			return true, nil, errors.New("down")
		}
		review := action.(kubernetestesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		r.askedAbout = review.Spec
		review.Status.Allowed = r.allowed
		return true, review, nil
	})
	return server
}

func TestMayRead(t *testing.T) {
	for name, tc := range map[string]struct {
		reviewer      reviewer
		authorization string
		want          int
		wantError     string
	}{
		"allowed":             {reviewer: reviewer{authenticated: true, allowed: true}, authorization: "Bearer known", want: 200},
		"not allowed":         {reviewer: reviewer{authenticated: true}, authorization: "Bearer known", want: 403},
		"another token":       {reviewer: reviewer{authenticated: true, allowed: true}, authorization: "Bearer other", want: 401},
		"no token":            {reviewer: reviewer{authenticated: true, allowed: true}, want: 401},
		"token review fails":  {reviewer: reviewer{tokenFails: true, allowed: true}, authorization: "Bearer known", want: 500, wantError: "review a token: down"},
		"access review fails": {reviewer: reviewer{authenticated: true, accessFails: true}, authorization: "Bearer known", want: 500, wantError: "review the permissions of prometheus: down"},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			request.Header.Set("Authorization", tc.authorization)
			got, err := mayRead(t.Context(), tc.reviewer.server(), request)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if got != tc.want || message != tc.wantError {
				t.Errorf("%d (%s), want %d (%s)", got, message, tc.want, tc.wantError)
			}
		})
	}
}

// The access review has all attributes of the user, and the path.
func TestMayReadReviewsUserAndPath(t *testing.T) {
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/metrics?name=x", nil)
	request.Header.Set("Authorization", "Bearer known")
	reviewer := &reviewer{authenticated: true}
	if _, err := mayRead(t.Context(), reviewer.server(), request); err != nil {
		t.Fatal(err)
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "prometheus", UID: "1", Groups: []string{"monitoring"}, Extra: map[string]authorizationv1.ExtraValue{"node": {"a"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "post"},
	}
	if diff := cmp.Diff(want, reviewer.askedAbout); diff != "" {
		t.Errorf("question (-want +got):\n%s", diff)
	}
}

// Without a certificate the connection fails with a reason: no other certificate is
// served.
func TestNoCertificateYet(t *testing.T) {
	directory := t.TempDir()
	if _, err := certificateIn(directory)(nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), filepath.Join(directory, "tls.crt")) {
		t.Errorf("want an error that names the missing file, got: %v", err)
	}
}
