// SPDX-License-Identifier: Apache-2.0

// Package auth authenticates and authorizes callers, and lets them act with their own
// permissions only. It also writes the audit log.
package auth

import (
	"context"
	"net/http"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Caller is the authenticated user of a request.
type Caller struct {
	User   string
	UID    string
	Groups []string
	// Source is the address of the client.
	Source string
	// Client and Cluster access the cluster with the caller's own permissions, never with
	// those of the server. Client also supports connection.OptionalKinds.
	Client  client.WithWatch
	Cluster kubernetes.Interface

	// extra has more attributes of the user, such as the scopes of an OpenShift token:
	// permissions depend on them.
	extra map[string]authenticationv1.ExtraValue
	// identifyAgain returns the current identity of the credentials, or an error if they
	// are no longer valid.
	identifyAgain func(context.Context) (*identity, error)
	// granted are the permissions that the call uses. They are checked again during a
	// stream.
	mutex   sync.Mutex
	granted map[Permission]bool
}

// Permission is an operation that needs authorization.
type Permission struct {
	Verb string
	// Group, Resource and Subresource in Kubernetes' terms: kubeflow.org, mpijobs.
	Group, Resource, Subresource string
	// Namespace is empty for all namespaces; Name is empty for all objects.
	Namespace, Name string
}

// Guard authenticates and authorizes. Its errors are apierror.Error: 401, or 403 with verb
// and resource.
type Guard interface {
	// Knows tells whether the credentials of a request were valid at their last review. It
	// uses only cached data and does not authenticate.
	Knows(request *http.Request) bool
	// Identify authenticates a request.
	Identify(ctx context.Context, request *http.Request) (*Caller, error)
	// Allow returns nil if the caller has a permission. The result may be up to 30 s old.
	Allow(ctx context.Context, caller *Caller, permission Permission) error
	// StillValid returns nil while the caller's credentials and all permissions granted by
	// Allow are valid. Streams call it regularly; the result may be up to 30 s old.
	StillValid(ctx context.Context, caller *Caller) error
}

type callerKey struct{}

// WithCaller adds the caller to a context.
func WithCaller(ctx context.Context, caller *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// CallerFrom returns the caller. It panics if the context has none, which is a bug in the
// server.
func CallerFrom(ctx context.Context) *Caller { return ctx.Value(callerKey{}).(*Caller) }

// Record is what the audit log has about a call. Handlers add what they know; the server
// writes one line when the call has finished, if it changes something.
type Record struct {
	// Verb is the RBAC verb: create, delete, patch. Empty if the call changes nothing.
	Verb            string
	Kind            string
	Namespace, Name string
}

type recordKey struct{}

// WithRecord adds an audit record to a context.
func WithRecord(ctx context.Context, record *Record) context.Context {
	return context.WithValue(ctx, recordKey{}, record)
}

// RecordFrom returns the audit record of a call. Without one, it returns a record that is
// discarded.
func RecordFrom(ctx context.Context) *Record {
	if record, kept := ctx.Value(recordKey{}).(*Record); kept {
		return record
	}
	return &Record{}
}
