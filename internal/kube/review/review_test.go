// SPDX-License-Identifier: Apache-2.0

package review

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestToken(t *testing.T) {
	ada := authenticationv1.UserInfo{Username: "ada", Groups: []string{"vision"}}
	unreachable := errors.New("no API server")
	for name, tc := range map[string]struct {
		status authenticationv1.TokenReviewStatus
		err    error
		want   *authenticationv1.UserInfo
	}{
		"valid":           {status: authenticationv1.TokenReviewStatus{Authenticated: true, User: ada}, want: &ada},
		"not valid":       {status: authenticationv1.TokenReviewStatus{User: ada}},
		"not known":       {err: unreachable},
		"an empty answer": {},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientset()
			api.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				asked := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
				if asked.Spec.Token != "secret" {
					t.Errorf("the token %q is reviewed", asked.Spec.Token)
				}
				return true, &authenticationv1.TokenReview{Status: tc.status}, tc.err
			})
			got, err := Token(t.Context(), api, "secret")
			if !errors.Is(err, tc.err) {
				t.Errorf("the error is %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSubject(t *testing.T) {
	got := Subject(&authenticationv1.UserInfo{
		Username: "ada", UID: "1", Groups: []string{"vision"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
	})
	want := authorizationv1.SubjectAccessReviewSpec{User: "ada", UID: "1", Groups: []string{"vision"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
