// SPDX-License-Identifier: Apache-2.0

// Package review asks the API server whom a token belongs to, and what users may do.
package review

import (
	"context"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Token returns the user of a token, or nil if the token is not valid.
func Token(ctx context.Context, api kubernetes.Interface, token string) (*authenticationv1.UserInfo, error) {
	reviewed, err := api.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil || !reviewed.Status.Authenticated {
		return nil, err
	}
	return &reviewed.Status.User, nil
}

// Subject returns the spec of a SubjectAccessReview about a user, to which the caller adds
// the permission.
func Subject(user *authenticationv1.UserInfo) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups}
	if len(user.Extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	}
	for key, values := range user.Extra {
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	return spec
}

// TokenFor returns the user of a token that was issued for an audience, or nil if the token
// is not valid for it.
func TokenFor(ctx context.Context, api kubernetes.Interface, token, audience string) (*authenticationv1.UserInfo, error) {
	reviewed, err := api.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}}}, metav1.CreateOptions{})
	// An authenticator that does not know audiences returns none.
	if err != nil || !reviewed.Status.Authenticated || !slices.Contains(reviewed.Status.Audiences, audience) {
		return nil, err
	}
	return &reviewed.Status.User, nil
}
