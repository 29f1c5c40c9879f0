package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/operation"
)

// messagePrefix is what gRPC puts before each message.
const messagePrefix = 5

// newRPC sets up gRPC. Each method needs a row in the table of operations.
func (s *Server) newRPC() error {
	s.rpc = grpc.NewServer(slices.Concat(s.tracing.rpc(), s.RPCOptions, []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxBody),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.streaming),
	})...)
	s.RPC(s.rpc)
	// A server without services: every call is one that it does not know, and needs no
	// message to be refused.
	s.refusing = grpc.NewServer(append(s.tracing.rpc(), grpc.UnknownServiceHandler(s.refuseRPC))...)
	for service, info := range s.rpc.GetServiceInfo() {
		for _, method := range info.Methods {
			name := "/" + service + "/" + method.Name
			row, known := operation.Lookup(name)
			if !known {
				return fmt.Errorf("the gRPC method %s has no row in the table of operations", name)
			}
			if isStream := method.IsClientStream || method.IsServerStream; isStream != (row.Stream == operation.AlwaysStream) {
				return fmt.Errorf("the table of operations is wrong about gRPC method %s: stream is %t", name, isStream)
			}
		}
	}
	return nil
}

// serveRPC lets a call in before anything of its message is read, and notes how it
// ended if nobody else does: gRPC refuses some by itself, such as a message that is
// too large.
func (s *Server) serveRPC(writer http.ResponseWriter, request *http.Request) {
	call := s.newRPCCall(request)
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	writer.Header().Set("X-Request-Id", call.id)
	s.sayGoodbye(writer)
	// What a client sends is gathered in memory, read or not. Nobody sends more than one
	// message, and nobody for long.
	request.Body = http.MaxBytesReader(writer, request.Body, maxBody+messagePrefix)
	control := http.NewResponseController(writer)
	_ = control.SetReadDeadline(time.Now().Add(s.messageTimeout))
	call.answer = &rpcAnswer{control: control}
	defer call.answer.end()
	ctx := context.WithValue(request.Context(), callKey{}, call)
	admitted, err := s.admitRPC(ctx, request, call)
	if err != nil {
		call.refused = err
		s.refusing.ServeHTTP(writer, request.WithContext(ctx))
	} else {
		request = request.WithContext(admitted)
		s.countBody(request, call)
		s.rpc.ServeHTTP(writer, request)
	}
	if call.take() {
		call.leave()
		s.end(call, http.MethodPost, answeredCode(call, writer.Header()))
	}
}

func (s *Server) countBody(request *http.Request, call *call) {
	if call.caller == nil {
		return
	}
	body := &countedBody{ReadCloser: request.Body, enter: func() (func(), error) { return s.fair.enterLarge(call.caller.User) }}
	before := call.leave
	request.Body, call.leave = body, func() { body.end(); before() }
}

func (s *Server) admitRPC(ctx context.Context, request *http.Request, call *call) (context.Context, error) {
	if err := s.knownPage(request); err != nil {
		return nil, err
	}
	return s.admit(ctx, request, call)
}

// answeredCode is HTTP's code of what gRPC answered by itself.
func answeredCode(call *call, header http.Header) int {
	if call.refused != nil {
		return codeOf(call.refused)
	}
	code, err := strconv.Atoi(header.Get("Grpc-Status"))
	if err != nil {
		return codeOf(context.Canceled)
	}
	if codes.Code(code) == codes.ResourceExhausted {
		// What is too much for gRPC itself is the size of a message.
		return http.StatusRequestEntityTooLarge
	}
	return codeOf(status.Error(codes.Code(code), ""))
}

// refuseRPC tells a client why it is not let in.
func (s *Server) refuseRPC(_ any, stream grpc.ServerStream) error {
	call := callFrom(stream.Context())
	if limited, is := errors.AsType[*tooMany](call.refused); is {
		s.metrics.refusals.WithLabelValues(limited.cause).Inc()
		_ = stream.SetHeader(metadata.Pairs("retry-after", limited.retryAfter()))
	}
	s.logFailure(call, call.refused)
	return s.RPCStatus(call.refused)
}

func (s *Server) logFailure(call *call, err error) {
	if code := codeOf(err); code >= http.StatusInternalServerError && !errors.Is(err, errStopping) {
		s.Log.Error("call failed", "error", err.Error(), "code", code, "method", call.route(), "requestID", call.id)
	}
}

// unary does for a call with one answer what the handlers of HTTP do.
func (s *Server) unary(ctx context.Context, message any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	call := callFrom(ctx)
	err = s.around(call, func() error {
		fillFrom(call.record, message)
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		answer, err = handle(ctx, message)
		if codeOf(err) == http.StatusTooManyRequests {
			// What others of the same user hold is sent within moments.
			_ = grpc.SetHeader(ctx, metadata.Pairs("retry-after", "1"))
		}
		return err
	})
	return answer, err
}

// streaming does the same for a stream.
func (s *Server) streaming(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	call := callFrom(stream.Context())
	return s.around(call, func() error {
		// Not the request's context, with which the way to the client would end.
		ctx, stop := s.supervise(stream.Context(), call.caller)
		defer stop()
		err := handle(service, &supervised{ServerStream: stream, ctx: ctx, answer: call.answer, writeTimeout: s.writeTimeout})
		if cause := context.Cause(ctx); isProblem(cause) {
			return cause
		}
		return err
	})
}

func isProblem(err error) bool {
	_, is := errors.AsType[*apierror.Error](err)
	return is
}

// supervised is a stream whose context ends when the stream should, and whose client
// must read.
type supervised struct {
	grpc.ServerStream
	ctx          context.Context
	answer       *rpcAnswer
	writeTimeout time.Duration
}

// Context of the call.
func (s *supervised) Context() context.Context { return s.ctx }

// SendMsg waits for the message before to be on its way, and not for ever.
func (s *supervised) SendMsg(message any) error {
	defer s.answer.cutAfter(s.writeTimeout)()
	return s.ServerStream.SendMsg(message)
}

// rpcAnswer is the answer to a call over gRPC, while it is written.
type rpcAnswer struct {
	mutex sync.Mutex
	// control is nil once the answer has ended.
	control *http.ResponseController
}

// cutAfter gives the answer up after some time, unless the returned function is called
// before: what is written can wait for a client that does not read for as long as it
// is connected.
func (r *rpcAnswer) cutAfter(limit time.Duration) (stop func()) {
	timer := time.AfterFunc(limit, func() {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		if r.control != nil {
			_ = r.control.SetWriteDeadline(time.Unix(1, 0))
		}
	})
	return func() { timer.Stop() }
}

// end is called before the answer's writer is gone.
func (r *rpcAnswer) end() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.control = nil
}

// around makes a call, and notes how it ended. Errors become what clients of gRPC see.
func (s *Server) around(call *call, make func() error) (err error) {
	if !call.take() {
		// The client has gone before the call began, and that was noted.
		return status.FromContextError(context.Canceled).Err()
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			err = s.panicked(call, panicked)
		}
		s.logFailure(call, err)
		code := codeOf(err)
		if _, told := status.FromError(err); !told {
			err = s.RPCStatus(err)
		}
		call.leave()
		s.end(call, http.MethodPost, code)
		// What is left is to tell the client.
		call.answer.cutAfter(s.messageTimeout)
	}()
	return make()
}

// healthCheck is for everybody, as /healthz is.
const healthCheck = "/grpc.health.v1.Health/Check"

// newRPCCall is a gRPC call whose caller has not been authenticated yet.
func (s *Server) newRPCCall(request *http.Request) *call {
	path := request.URL.Path
	made := &call{
		id: newID(), begun: time.Now(), source: auth.SourceOf(request, s.Proxy), record: &auth.Record{},
		// A client can send any number of method names that do not exist.
		open: path == healthCheck, route: func() string { return "" }, leave: func() {},
	}
	if row, known := operation.Lookup(path); known {
		made.route, made.stream, made.record = func() string { return path }, row.Stream == operation.AlwaysStream, row.Record()
	}
	return made
}

// fillFrom adds what a message says of the object that is meant.
func fillFrom(record *auth.Record, message any) {
	if named, is := message.(interface{ GetNamespace() string }); is {
		record.Namespace = named.GetNamespace()
	}
	if named, is := message.(interface{ GetName() string }); is {
		record.Name = named.GetName()
	}
}

// httpCodes are the codes of HTTP that those of gRPC stand for.
var httpCodes = map[codes.Code]int{
	codes.OK: http.StatusOK, codes.Canceled: 499, codes.InvalidArgument: http.StatusBadRequest, codes.OutOfRange: http.StatusBadRequest,
	codes.FailedPrecondition: http.StatusBadRequest, codes.Unauthenticated: http.StatusUnauthorized, codes.PermissionDenied: http.StatusForbidden,
	codes.NotFound: http.StatusNotFound, codes.AlreadyExists: http.StatusConflict, codes.Aborted: http.StatusConflict,
	codes.ResourceExhausted: http.StatusTooManyRequests, codes.Unimplemented: http.StatusNotImplemented, codes.Unavailable: http.StatusServiceUnavailable,
	codes.DeadlineExceeded: http.StatusGatewayTimeout,
}

// codeOf is HTTP's code of an error, for the audit and the metrics.
func codeOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if told, is := status.FromError(err); is {
		if code, known := httpCodes[told.Code()]; known {
			return code
		}
		return http.StatusInternalServerError
	}
	return apierror.From(err).Code
}
