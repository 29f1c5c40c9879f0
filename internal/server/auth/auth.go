// Package access tells who calls, what they may do, and lets them act with their
// own rights and no others.
package auth

import (
	"context"
	"net/http"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Caller is who asks.
type Caller struct {
	User   string
	UID    string
	Groups []string
	// Source is the address that the call came from.
	Source string
	// Client and Cluster reach the cluster with the caller's own rights, and with
	// nothing of the server's. Client also knows the kinds of connection.OptionalKinds.
	Client  client.WithWatch
	Cluster kubernetes.Interface

	// extra is what else the cluster knows of the user, such as the scopes of a token
	// of OpenShift's: rights depend on it.
	extra map[string]authenticationv1.ExtraValue
	// again is who has the credentials now; an error if they do not hold any more.
	identifyAgain func(context.Context) (*identity, error)
	// granted are the rights that the call was allowed by: a stream lasts longer than
	// the answer may be old.
	mutex   sync.Mutex
	granted map[Permission]bool
}

// Rights is something that a caller wants to do.
type Permission struct {
	Verb string
	// Group, Resource and Subresource as Kubernetes names them: kubeflow.org, mpijobs.
	Group, Resource, Subresource string
	// Namespace is empty for all of them; Name is empty for all objects.
	Namespace, Name string
}

// Guard decides who gets in, and to what. Its errors are problem.Error: 401, and 403
// naming verb and resource.
type Guard interface {
	// Knows says whether a request has credentials that were valid when they were last
	// looked at. It asks nobody, and lets nobody in.
	Knows(request *http.Request) bool
	// Identify is the caller of a request, by its credentials.
	Identify(ctx context.Context, request *http.Request) (*Caller, error)
	// Allow is nil if a caller may do something. An answer may be up to 30 s old.
	Allow(ctx context.Context, caller *Caller, rights Permission) error
	// StillValid is nil as long as the caller's credentials hold, and all that Allow
	// has allowed. Streams ask from time to time; an answer may be up to 30 s old.
	StillValid(ctx context.Context, caller *Caller) error
}

type callerKey struct{}

// WithCaller is a context that knows who calls.
func WithCaller(ctx context.Context, caller *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// CallerFrom is who calls. A context without one is a mistake of the server's.
func CallerFrom(ctx context.Context) *Caller { return ctx.Value(callerKey{}).(*Caller) }

// Record is what the audit tells of a call. Whoever learns something of the call
// fills it in; the server writes one line of it when the call has ended, if it was
// to change something.
type Record struct {
	// Verb as rights name it: create, delete, patch. Empty where nothing was to be
	// changed.
	Verb            string
	Kind            string
	Namespace, Name string
}

type recordKey struct{}

// WithRecord is a context whose call is recorded.
func WithRecord(ctx context.Context, record *Record) context.Context {
	return context.WithValue(ctx, recordKey{}, record)
}

// RecordFrom is the record of a call. Where nobody keeps one it is forgotten.
func RecordFrom(ctx context.Context) *Record {
	if record, kept := ctx.Value(recordKey{}).(*Record); kept {
		return record
	}
	return &Record{}
}
