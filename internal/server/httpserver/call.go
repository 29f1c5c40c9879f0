// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/operation"
)

// call is a request in progress, over REST or gRPC.
type call struct {
	id      string
	started time.Time
	source  string
	// public calls need no authentication; a stream lasts until one side ends it.
	public, stream bool
	record         *auth.Record
	caller         *auth.Caller
	// route is the label in metrics. It is known after the handler has run.
	route func() string
	// release frees what the call holds. It is called when the call has finished.
	release func()
	// response is set for gRPC calls; refusal is the error of a gRPC call that was
	// refused.
	response *grpcResponse
	refusal  error
	// recorded is true once a goroutine has taken over recording the result of the call.
	recorded atomic.Bool
}

// startRecording returns true to exactly one caller, which then records the result:
// handlers of gRPC may outlive their HTTP request.
func (c *call) startRecording() bool { return c.recorded.CompareAndSwap(false, true) }

type callKey struct{}

func callFrom(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// newID returns a unique ID for a request.
func newID() string { return rand.Text() }

// verbs are the audit verbs of requests that no route matches. They are answered with
// 404 or 405, and are in the audit log if their HTTP method is one that changes things.
var verbs = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}

// publicPaths are the paths that the server serves itself, without authentication.
var publicPaths = []string{"/healthz", "/readyz", "/version"}

// newCall is a call whose request has not been authenticated yet.
func (s *Server) newCall(request *http.Request) *call {
	match := operation.Find(request)
	return &call{
		id: newID(), started: time.Now(), release: func() {}, source: auth.SourceOf(request, s.Proxy), route: func() string { return request.Pattern },
		public: s.isPublic(request),
		stream: match.IsStream(request),
		record: newRecord(match, request.Method),
	}
}

func newRecord(match operation.Match, method string) *auth.Record {
	record := &auth.Record{Verb: verbs[method]}
	if match.Operation != nil {
		record = match.Record()
	}
	record.Kind, record.Namespace, record.Name = match.Kind, match.Namespace, match.Name
	return record
}

// isServerPath tells whether the server handles a path itself, not the API.
func (s *Server) isServerPath(path string) bool {
	return s.Public[path] != nil || slices.Contains(publicPaths, path)
}

// isPage tells whether a request is for the dashboard. A path of the server's own, such as
// /version, is not.
func (s *Server) isPage(request *http.Request) bool {
	return s.Page != nil && !s.isServerPath(request.URL.Path) && s.Page.Handles(request)
}

func (s *Server) isPublic(request *http.Request) bool {
	return s.isPage(request) || s.isServerPath(request.URL.Path) && (request.Method == http.MethodGet || request.Method == http.MethodHead)
}

// admit authenticates a call and applies the limits. It returns the context of the call.
// release must be called when the call has finished.
func (s *Server) admit(ctx context.Context, request *http.Request, call *call) (context.Context, error) {
	ctx = auth.WithRecord(ctx, call.record)
	if call.public {
		return ctx, s.admitPublic(request, call)
	}
	caller, err := s.identify(ctx, request, call)
	if err != nil {
		return nil, err
	}
	call.caller = caller
	release, err := s.users.acquire(caller.User, call.stream)
	if err != nil {
		return nil, err
	}
	call.release = release
	if call.stream {
		s.metrics.streams.Inc()
		s.openStreams.Add(1)
		call.release = func() { release(); s.metrics.streams.Dec(); s.openStreams.Done() }
	}
	return auth.WithCaller(ctx, caller), nil
}

// unlimitedPaths are public paths without a limit per source: otherwise other clients
// behind a load balancer could make the load balancer take the server out of service.
var unlimitedPaths = []string{"/healthz", "/readyz", healthCheck}

func (s *Server) admitPublic(request *http.Request, call *call) error {
	// The files of the page are in memory, and users behind one address load them together.
	isFile := s.isPage(request) && request.Method != http.MethodPost
	if isFile || slices.Contains(unlimitedPaths, request.URL.Path) {
		return nil
	}
	return s.sources.acquire(call.source)
}

// identify authenticates a request. A caller with an unknown token uses the budget of its
// source address before the API server reviews the token, and gets it back if the token is
// valid. So the budget bounds the reviews of invalid tokens, and users with valid tokens
// are only limited per user.
func (s *Server) identify(ctx context.Context, request *http.Request, call *call) (*auth.Caller, error) {
	known := s.Guard.Knows(request)
	if !known {
		if err := s.sources.acquire(call.source); err != nil {
			return nil, err
		}
	}
	caller, err := s.Guard.Identify(ctx, request)
	if err == nil && !known {
		s.sources.release(call.source)
	}
	return caller, err
}

// errStopping ends streams when the server shuts down. It is also a cancellation, which
// streams report to clients as "going away".
var errStopping = fmt.Errorf("%w: %w", context.Canceled, apierror.New(http.StatusServiceUnavailable, "ServerStopping",
	"This server is shutting down", "Reconnect and resume after the last event that you received"))

// supervise ends a stream when its caller's token or permissions are no longer valid, or
// when the server shuts down. context.Cause tells which.
func (s *Server) supervise(ctx context.Context, caller *auth.Caller) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := context.AfterFunc(s.stopping, func() { cancel(errStopping) })
	// A timer costs an idle stream less than a goroutine.
	var timer *time.Timer
	started := make(chan struct{})
	valid := time.Now()
	timer = time.AfterFunc(s.checkInterval, func() {
		<-started
		err := s.Guard.StillValid(ctx, caller)
		if err == nil {
			valid = time.Now()
		}
		if err != nil && (isDenied(err) || time.Since(valid) > s.maxUnverified) {
			cancel(err)
		}
		if ctx.Err() == nil {
			timer.Reset(s.checkInterval)
		}
	})
	close(started)
	return ctx, func() { timer.Stop(); stopped(); cancel(nil) }
}

// isDenied tells whether an error is a denial. Other errors, such as an unreachable API
// server, are no reason to end streams immediately.
func isDenied(err error) bool {
	code := apierror.From(err).Code
	return code == http.StatusUnauthorized || code == http.StatusForbidden
}

// end records the result of a call in the audit log and the metrics.
func (s *Server) end(call *call, method string, code int) {
	s.audit.Write(auth.Outcome{Record: *call.record, Caller: call.caller, Source: call.source, Code: code, RequestID: call.id})
	s.metrics.observe(call, method, code, time.Since(call.started))
}
