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

// call is what is known of a call while it is made.
type call struct {
	id      string
	started time.Time
	source  string
	// open is for everybody; stream lasts until one side ends it.
	public, stream bool
	record         *auth.Record
	caller         *auth.Caller
	// route is what calls are counted by. It is known once the call was answered.
	route func() string
	// leave is what must be done when the call has ended.
	release func()
	// answer is that of a call over gRPC; refused is why it was not let in.
	response *grpcResponse
	refusal  error
	// taken: somebody notes how the call ends.
	recorded atomic.Bool
}

// take says whether it is on whoever asks to note how the call ends. It is on one
// alone: the handlers of gRPC may outlive the request that brought the call.
func (c *call) startRecording() bool { return c.recorded.CompareAndSwap(false, true) }

type callKey struct{}

func callFrom(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// newID is a name that no other call has.
func newID() string { return rand.Text() }

// verbs are the audit verbs of requests that no route matches. They are answered with
// 404 or 405, and are in the audit log if their HTTP method is one that changes things.
var verbs = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}

// alwaysOpen are the paths that the server answers by itself.
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

// isOwn tells whether a path is answered by the server itself, and not by the API.
func (s *Server) isServerPath(path string) bool {
	return s.Public[path] != nil || slices.Contains(publicPaths, path)
}

func (s *Server) isPublic(request *http.Request) bool {
	return s.isServerPath(request.URL.Path) && (request.Method == http.MethodGet || request.Method == http.MethodHead)
}

// admit lets a call in, or says why not. It returns the context that the call is made
// with. The call must leave when it has ended.
func (s *Server) admit(ctx context.Context, request *http.Request, call *call) (context.Context, error) {
	ctx = auth.WithRecord(ctx, call.record)
	if call.public {
		return ctx, s.admitPublic(request.URL.Path, call)
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

// neverLimited are open calls that every source may make: a load balancer would take
// the server out of service because of others behind it.
var unlimitedPaths = []string{"/healthz", "/readyz", healthCheck}

func (s *Server) admitPublic(path string, call *call) error {
	if slices.Contains(unlimitedPaths, path) {
		return nil
	}
	return s.sources.acquire(call.source)
}

// identify is who calls. A caller who is not known takes from the budget of their
// source before the cluster is asked, and gives it back if they are found valid: so
// nobody has more invalid tokens reviewed than the budget allows, and whoever has a
// valid one is limited as a user alone.
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

// errStopping is why streams end when the server does. It is also a cancellation: to
// those who tell clients that is the sign that they may go on elsewhere.
var errStopping = fmt.Errorf("%w: %w", context.Canceled, apierror.New(http.StatusServiceUnavailable, "ServerStopping",
	"This server is shutting down", "Reconnect and resume after the last event that you received"))

// supervise ends a stream when its caller's token or rights no longer hold, or the
// server ends. The cause of the context's end says which (context.Cause).
func (s *Server) supervise(ctx context.Context, caller *auth.Caller) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := context.AfterFunc(s.stopping, func() { cancel(errStopping) })
	// A timer costs a stream that says nothing less than a goroutine would.
	var timer *time.Timer
	begun := make(chan struct{})
	valid := time.Now()
	timer = time.AfterFunc(s.checkInterval, func() {
		<-begun
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
	close(begun)
	return ctx, func() { timer.Stop(); stopped(); cancel(nil) }
}

// isRefusal says whether an error is a no, and not that nobody could be asked: that is
// no reason to cut everybody off at once.
func isDenied(err error) bool {
	code := apierror.From(err).Code
	return code == http.StatusUnauthorized || code == http.StatusForbidden
}

// end notes how a call ended.
func (s *Server) end(call *call, method string, code int) {
	s.audit.Write(auth.Outcome{Record: *call.record, Caller: call.caller, Source: call.source, Code: code, RequestID: call.id})
	s.metrics.observe(call, method, code, time.Since(call.started))
}
