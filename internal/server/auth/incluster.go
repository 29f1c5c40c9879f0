// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/kube/review"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// maxPermissionReviews is the number of cached permission checks.
const maxPermissionReviews = 50_000

// InCluster is the guard of a server in a cluster. The API server reviews every token and
// every permission; the guard itself needs no other permissions.
type InCluster struct {
	clients *clients
	own     kubernetes.Interface
	proxy   *Proxy
	// identities are cached by token, impersonated by the proxy's headers. They are
	// separate, so that a client cannot send the content of a proxy's headers as a token.
	identities, impersonated *reviewCache[*identity]
	reviews                  *reviewCache[bool]
	known                    *knownTokens
}

// NewInCluster creates a guard with the server's own connection. Without a proxy, no
// headers are trusted.
func NewInCluster(server *rest.Config, proxy *Proxy, clock clock.PassiveClock) (*InCluster, error) {
	clients := newClients(server)
	own, err := kubernetes.NewForConfig(clients.server)
	if err != nil {
		return nil, err
	}
	return &InCluster{
		clients: clients, own: own, proxy: proxy, known: newKnownTokens(clock),
		identities: newReviewCache[*identity](clock, maxIdentities), impersonated: newReviewCache[*identity](clock, maxIdentities), reviews: newReviewCache[bool](clock, maxPermissionReviews),
	}, nil
}

// Identify authenticates a request by its token, or by the headers of a trusted proxy.
func (i *InCluster) Identify(ctx context.Context, request *http.Request) (*Caller, error) {
	source := SourceOf(request, i.proxy)
	credentials, err := i.credentials(request)
	if err != nil {
		return nil, err
	}
	if credentials.token == "" && credentials.user != "" {
		return i.impersonate(ctx, credentials, source)
	}
	token := credentials.token
	if token == "" {
		return nil, noToken("Send a token of the cluster as Authorization: Bearer TOKEN; create one with kubectl create token NAME or oc whoami -t")
	}
	id, err := i.byToken(ctx, token)
	if err != nil {
		return nil, err
	}
	return id.caller(source, func(ctx context.Context) (*identity, error) { return i.byToken(ctx, token) }), nil
}

// credentials returns the token of a request, or the user in the headers of a trusted
// proxy.
func (i *InCluster) credentials(request *http.Request) (proxyUser, error) {
	token, err := tokenOf(request)
	if err != nil || token != "" || !i.proxy.Trusts(request) {
		return proxyUser{token: token}, err
	}
	return i.proxy.userFromHeaders(request)
}

// Knows tells whether the token was valid at its last review. A user named by a trusted
// proxy needs no review.
func (i *InCluster) Knows(request *http.Request) bool {
	credentials, err := i.credentials(request)
	if err != nil {
		return false
	}
	if credentials.token == "" {
		return credentials.user != "" && i.proxy.Impersonate
	}
	return i.known.has(credentials.token)
}

func (i *InCluster) byToken(ctx context.Context, token string) (*identity, error) {
	return i.identities.get(ctx, fingerprintOf([]byte(token)), func(ctx context.Context) (*identity, error) {
		user, err := review.Token(ctx, i.own, token)
		if err != nil {
			return nil, reviewFailed("review the token", err)
		}
		if user == nil {
			i.known.remove(token)
			return nil, invalidToken()
		}
		i.known.add(token)
		return i.clients.identity(i.clients.withToken(token), *user)
	})
}

// impersonate returns the caller that a trusted proxy names without a token.
func (i *InCluster) impersonate(ctx context.Context, user proxyUser, source string) (*Caller, error) {
	if !i.proxy.Impersonate {
		return nil, unauthorized(fmt.Sprintf("The proxy names user %q but sends no token for that user", user.user),
			"Configure the proxy to send X-Forwarded-Access-Token (OAuth proxy: --pass-access-token), or start the server with --impersonate")
	}
	if isReserved(user.user) || slices.ContainsFunc(user.groups, isReserved) {
		return nil, unauthorized(fmt.Sprintf("The proxy names user %q with groups %q; names that start with system: are reserved for Kubernetes", user.user, user.groups),
			"Sign in as a user whose name and groups do not start with system:")
	}
	userInfo := authenticationv1.UserInfo{Username: user.user, Groups: append(slices.Clone(user.groups), "system:authenticated")}
	question, err := json.Marshal(userInfo)
	if err != nil {
		return nil, err
	}
	id, err := i.impersonated.get(ctx, fingerprintOf(question), func(context.Context) (*identity, error) {
		return i.clients.identity(i.clients.as(userInfo), userInfo)
	})
	if err != nil {
		return nil, err
	}
	// No token can be revoked here: the proxy ends the requests that it no longer allows.
	return id.caller(source, func(context.Context) (*identity, error) { return id, nil }), nil
}

// Allow asks the API server, unless the result is cached.
func (i *InCluster) Allow(ctx context.Context, caller *Caller, permission Permission) error {
	spec := reviewOf(caller, permission)
	question, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	_, err = i.reviews.get(ctx, fingerprintOf(question), func(ctx context.Context) (bool, error) {
		review, err := i.own.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return false, reviewFailed("review the permissions", err)
		}
		if !review.Status.Allowed {
			return false, forbidden(caller, permission)
		}
		return true, nil
	})
	if err == nil {
		caller.grant(permission)
	}
	return err
}

// grant records that the call uses a permission.
func (c *Caller) grant(permission Permission) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.granted == nil {
		c.granted = map[Permission]bool{}
	}
	c.granted[permission] = true
}

func (c *Caller) permissions() []Permission {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return slices.Collect(maps.Keys(c.granted))
}

func reviewOf(caller *Caller, permission Permission) authorizationv1.SubjectAccessReviewSpec {
	spec := review.Subject(&authenticationv1.UserInfo{Username: caller.User, UID: caller.UID, Groups: caller.Groups, Extra: caller.extra})
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: permission.Verb, Group: permission.Group, Resource: permission.Resource, Subresource: permission.Subresource, Namespace: permission.Namespace, Name: permission.Name,
	}
	return spec
}

// StillValid reviews the caller's token and the used permissions again, unless the results
// are cached.
func (i *InCluster) StillValid(ctx context.Context, caller *Caller) error {
	current, err := caller.currentIdentity(ctx)
	if err != nil {
		return err
	}
	// A user who has left a group no longer has its permissions.
	now := current.caller(caller.Source, caller.identifyAgain)
	for _, permission := range caller.permissions() {
		if err := i.Allow(ctx, now, permission); err != nil {
			return err
		}
	}
	return nil
}

// currentIdentity returns the current identity of the caller's credentials. It is an error
// if they are invalid or belong to another user.
func (c *Caller) currentIdentity(ctx context.Context) (*identity, error) {
	current, err := c.identifyAgain(ctx)
	if err != nil {
		return nil, err
	}
	if current.user.Username != c.User || current.user.UID != c.UID {
		return nil, invalidToken()
	}
	return current, nil
}

// reviewFailed is the error if the API server returns no result. The cause is only logged:
// it may be about the server's own permissions.
func reviewFailed(operation string, err error) error {
	return fmt.Errorf("%s: %w (%v)", operation, apierror.New(http.StatusServiceUnavailable, "ServiceUnavailable",
		"The API server cannot check your token and permissions right now", "Retry in a few seconds, and report it to the cluster administrator if it persists"), err)
}

// forbidden says which permission the caller does not have.
func forbidden(caller *Caller, permission Permission) *apierror.Error {
	resource := permission.Resource
	if permission.Subresource != "" {
		resource += "/" + permission.Subresource
	}
	if permission.Group != "" {
		resource += "." + permission.Group
	}
	if permission.Name != "" {
		resource += fmt.Sprintf(" %q", permission.Name)
	}
	message := fmt.Sprintf("User %q may not %s %s", caller.User, permission.Verb, resource)
	if permission.Namespace == "" {
		return apierror.New(http.StatusForbidden, "Forbidden", message+" at the cluster scope",
			"Name a namespace in which you have the permission, or ask a cluster administrator for it")
	}
	return apierror.New(http.StatusForbidden, "Forbidden", fmt.Sprintf("%s in namespace %q", message, permission.Namespace),
		fmt.Sprintf("Ask an admin of namespace %q for the permission", permission.Namespace),
		"List your permissions: kubectl auth can-i --list --namespace "+permission.Namespace)
}
