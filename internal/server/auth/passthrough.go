// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// PassThrough is the guard of odh server on a user's own machine. It has no permissions of
// its own: a session token that only this process knows stands for the kubeconfig's
// identity; other tokens are passed to the API server.
type PassThrough struct {
	clients    *clients
	session    string
	identities *reviewCache[*identity]
	known      *knownTokens
}

// NewPassThrough creates a guard with the connection of a kubeconfig.
func NewPassThrough(kubeconfig *rest.Config, clock clock.PassiveClock) *PassThrough {
	return &PassThrough{clients: newClients(kubeconfig), session: rand.Text(), identities: newReviewCache[*identity](clock, maxIdentities), known: newKnownTokens(clock)}
}

// SessionToken returns the token that stands for the kubeconfig's identity until the
// process ends.
func (p *PassThrough) SessionToken() string { return p.session }

// Knows tells whether the token is the session token, or was valid at its last review.
func (p *PassThrough) Knows(request *http.Request) bool {
	token, err := tokenOf(request)
	return err == nil && token != "" && (p.isSession(token) || p.known.has(token))
}

func (p *PassThrough) isSession(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(p.session)) == 1
}

// Identify authenticates a request by its token.
func (p *PassThrough) Identify(ctx context.Context, request *http.Request) (*Caller, error) {
	token, err := tokenOf(request)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, noToken("Send the session token that odh server printed when it started, as Authorization: Bearer TOKEN")
	}
	id, err := p.byToken(ctx, token)
	if err != nil {
		return nil, err
	}
	return id.caller(SourceOf(request, nil), func(ctx context.Context) (*identity, error) { return p.byToken(ctx, token) }), nil
}

func (p *PassThrough) byToken(ctx context.Context, token string) (*identity, error) {
	config := p.clients.withToken(token)
	if p.isSession(token) {
		config = p.clients.server
	}
	return p.identities.get(ctx, fingerprintOf([]byte(token)), func(ctx context.Context) (*identity, error) {
		id, err := p.clients.identity(config, authenticationv1.UserInfo{})
		if err != nil {
			return nil, err
		}
		review, err := id.cluster.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if apierrors.IsUnauthorized(err) {
			p.known.remove(token)
			return nil, invalidToken()
		}
		if err != nil {
			return nil, reviewFailed("look up the user of the token", err)
		}
		p.known.add(token)
		id.user = review.Status.UserInfo
		return id, nil
	})
}

// Allow always returns nil: all requests use the caller's own permissions, and the API
// server checks them.
func (p *PassThrough) Allow(context.Context, *Caller, Permission) error { return nil }

// StillValid asks the API server again, unless the result is cached.
func (p *PassThrough) StillValid(ctx context.Context, caller *Caller) error {
	_, err := caller.currentIdentity(ctx)
	return err
}
