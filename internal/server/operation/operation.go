// SPDX-License-Identifier: Apache-2.0

// Package operation is the table of all calls that the server answers, over REST and
// gRPC. Each row has what the audit, the limits and the timeouts need to know before
// the call's handler runs. A route or method without a row does not start: rest.New and
// httpserver.New return an error.
package operation

import (
	"net/http"

	"github.com/trireme-mpi/trireme/internal/server/auth"
)

// Stream tells whether a call is a stream, which lasts until one side ends it.
type Stream int

const (
	// NoStream is a call with one answer.
	NoStream Stream = iota
	// StreamOnFollow is a REST call that is a stream if its query has follow=true.
	StreamOnFollow
	// AlwaysStream is a watch, or any gRPC method with a stream of messages.
	AlwaysStream
)

// Audit tells which calls are in the audit log.
type Audit int

const (
	// AuditNone is for calls that only read: the audit log does not have them.
	AuditNone Audit = iota
	// AuditChange is for calls that change something: one line each, also if refused.
	AuditChange
)

// Operation is a row of the table.
type Operation struct {
	// Call is the pattern of a REST route, such as "GET /api/v1/namespaces/{namespace}/mpijobs",
	// or the full name of a gRPC method, such as "/training.MPIJobService/CreateMPIJob".
	Call string
	// Verb is the RBAC verb; "check" for preflight checks and diagnoses.
	Verb string
	// Kind of the object. Empty if the request names the kind, or if it is not about one.
	Kind   string
	Stream Stream
	Audit  Audit
}

// Record is what the audit log has about a call before its handler runs. It is empty for
// calls that are not in the audit log.
func (o *Operation) Record() *auth.Record {
	if o.Audit == AuditNone {
		return &auth.Record{}
	}
	return &auth.Record{Verb: o.Verb, Kind: o.Kind}
}

// Lookup returns the row of a REST pattern or a gRPC method.
func Lookup(call string) (*Operation, bool) {
	row, known := byCall[call]
	return row, known
}

// Match is the part of the table that applies to a REST request.
type Match struct {
	// Operation is nil if no route has the request's path and method.
	*Operation
	// Kind, Namespace and Name of the object, also if the path does not have the method.
	Kind, Namespace, Name string
}

// Find matches a request against the REST routes.
func Find(request *http.Request) Match {
	f := &finder{}
	// The mux writes to the request that it serves.
	restPaths.ServeHTTP(f, request.WithContext(request.Context()))
	return f.match
}

// IsStream tells whether a request is a stream. HEAD never is.
func (m Match) IsStream(request *http.Request) bool {
	if m.Operation == nil || request.Method != http.MethodGet {
		return false
	}
	return m.Stream == AlwaysStream || m.Stream == StreamOnFollow && request.URL.Query().Get("follow") == "true"
}

// pathRows are the rows of one REST path, by HTTP method.
type pathRows map[string]*Operation

// ServeHTTP reports the rows to the finder that it is called with.
func (p pathRows) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	match := Match{Operation: p[request.Method], Namespace: request.PathValue("namespace"), Name: request.PathValue("name")}
	if request.Method == http.MethodHead {
		match.Operation = p[http.MethodGet]
	}
	// All rows of a path have the same kind.
	for _, row := range p {
		match.Kind = row.Kind
	}
	writer.(*finder).match = match
}

// finder receives the rows that the mux finds for a request, and discards the mux's own
// answers, such as 404.
type finder struct{ match Match }

func (f *finder) Header() http.Header               { return http.Header{} }
func (f *finder) Write(content []byte) (int, error) { return len(content), nil }
func (f *finder) WriteHeader(int)                   {}
