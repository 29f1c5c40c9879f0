// SPDX-License-Identifier: Apache-2.0

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

// messagePrefix is the length of the header of a gRPC message.
const messagePrefix = 5

// newGRPC sets up gRPC. Each method needs a row in the table of operations.
func (s *Server) newGRPC() error {
	s.grpcServer = grpc.NewServer(slices.Concat(s.tracing.grpc(), s.GRPCOptions, []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxBody),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.streaming),
	})...)
	s.RegisterGRPC(s.grpcServer)
	// This server has no services: it refuses every call as unknown, without reading a
	// message.
	s.refusingServer = grpc.NewServer(append(s.tracing.grpc(), grpc.UnknownServiceHandler(s.refuseGRPC))...)
	for service, info := range s.grpcServer.GetServiceInfo() {
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

// serveGRPC admits a call before it reads the message. It records the result of calls that
// gRPC refuses by itself, such as those with too large messages.
func (s *Server) serveGRPC(writer http.ResponseWriter, request *http.Request) {
	call := s.newGRPCCall(request)
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	writer.Header().Set("X-Request-Id", call.id)
	s.closeWhenStopping(writer)
	// gRPC buffers what a client sends, even if nobody reads it. Each call has one
	// message, which must arrive in time.
	request.Body = http.MaxBytesReader(writer, request.Body, maxBody+messagePrefix)
	control := http.NewResponseController(writer)
	_ = control.SetReadDeadline(time.Now().Add(s.messageTimeout))
	call.response = &grpcResponse{control: control}
	defer call.response.end()
	ctx := context.WithValue(request.Context(), callKey{}, call)
	admitted, err := s.admitGRPC(ctx, request, call)
	if err != nil {
		call.refusal = err
		s.refusingServer.ServeHTTP(writer, request.WithContext(ctx))
	} else {
		request = request.WithContext(admitted)
		s.countBody(request, call)
		s.grpcServer.ServeHTTP(writer, request)
	}
	if call.startRecording() {
		call.release()
		s.end(call, http.MethodPost, responseCode(call, writer.Header()))
	}
}

func (s *Server) countBody(request *http.Request, call *call) {
	if call.caller == nil {
		return
	}
	body := &countedBody{ReadCloser: request.Body, acquire: func() (func(), error) { return s.users.acquireLargeBody(call.caller.User) }}
	before := call.release
	request.Body, call.release = body, func() { body.end(); before() }
}

func (s *Server) admitGRPC(ctx context.Context, request *http.Request, call *call) (context.Context, error) {
	if err := s.checkOrigin(request); err != nil {
		return nil, err
	}
	return s.admit(ctx, request, call)
}

// responseCode returns the HTTP status code of a response that gRPC wrote by itself.
func responseCode(call *call, header http.Header) int {
	if call.refusal != nil {
		return codeOf(call.refusal)
	}
	code, err := strconv.Atoi(header.Get("Grpc-Status"))
	if err != nil {
		return codeOf(context.Canceled)
	}
	if codes.Code(code) == codes.ResourceExhausted {
		// gRPC itself only limits the size of messages.
		return http.StatusRequestEntityTooLarge
	}
	return codeOf(status.Error(codes.Code(code), ""))
}

// refuseGRPC sends the refusal of a call.
func (s *Server) refuseGRPC(_ any, stream grpc.ServerStream) error {
	call := callFrom(stream.Context())
	if limited, is := errors.AsType[*limitError](call.refusal); is {
		s.metrics.refusals.WithLabelValues(limited.cause).Inc()
		_ = stream.SetHeader(metadata.Pairs("retry-after", limited.retryAfter()))
	}
	s.logFailure(call, call.refusal)
	return s.GRPCStatus(call.refusal)
}

func (s *Server) logFailure(call *call, err error) {
	if code := codeOf(err); code >= http.StatusInternalServerError && !errors.Is(err, errStopping) {
		s.Log.Error("call failed", "error", err.Error(), "code", code, "method", call.route(), "requestID", call.id)
	}
}

// unary handles a call with one response, as the HTTP handlers do.
func (s *Server) unary(ctx context.Context, message any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	call := callFrom(ctx)
	err = s.runCall(call, func() error {
		addObject(call.record, message)
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		answer, err = handle(ctx, message)
		if codeOf(err) == http.StatusTooManyRequests {
			// Other responses of the same user are sent within moments.
			_ = grpc.SetHeader(ctx, metadata.Pairs("retry-after", "1"))
		}
		return err
	})
	return answer, err
}

// streaming handles a call with a stream of responses.
func (s *Server) streaming(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	call := callFrom(stream.Context())
	return s.runCall(call, func() error {
		// Not the request's context: the connection to the client would end with it.
		ctx, stop := s.supervise(stream.Context(), call.caller)
		defer stop()
		err := handle(service, &supervisedStream{ServerStream: stream, ctx: ctx, response: call.response, writeTimeout: s.writeTimeout})
		if cause := context.Cause(ctx); isAPIError(cause) {
			return cause
		}
		return err
	})
}

func isAPIError(err error) bool {
	_, is := errors.AsType[*apierror.Error](err)
	return is
}

// supervisedStream ends with the supervised context, and limits how long a client may take
// to read.
type supervisedStream struct {
	grpc.ServerStream
	ctx          context.Context
	response     *grpcResponse
	writeTimeout time.Duration
}

// Context returns the supervised context.
func (s *supervisedStream) Context() context.Context { return s.ctx }

// SendMsg waits until the previous message is sent, but not longer than writeTimeout.
func (s *supervisedStream) SendMsg(message any) error {
	defer s.response.abortAfter(s.writeTimeout)()
	return s.ServerStream.SendMsg(message)
}

// grpcResponse is the response to a gRPC call, while it is written.
type grpcResponse struct {
	mutex sync.Mutex
	// control is nil once the response is complete.
	control *http.ResponseController
}

// abortAfter aborts the response after a time limit, unless stop is called before: a write
// blocks as long as the client is connected and does not read.
func (g *grpcResponse) abortAfter(limit time.Duration) (stop func()) {
	timer := time.AfterFunc(limit, func() {
		g.mutex.Lock()
		defer g.mutex.Unlock()
		if g.control != nil {
			_ = g.control.SetWriteDeadline(time.Unix(1, 0))
		}
	})
	return func() { timer.Stop() }
}

// end must be called before the response writer becomes invalid.
func (g *grpcResponse) end() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.control = nil
}

// runCall runs a call and records its result. It converts errors to gRPC statuses.
func (s *Server) runCall(call *call, handle func() error) (err error) {
	if !call.startRecording() {
		// The client disconnected before the call started, and that is recorded.
		return status.FromContextError(context.Canceled).Err()
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			err = s.logPanic(call, panicked)
		}
		s.logFailure(call, err)
		code := codeOf(err)
		if _, isStatus := status.FromError(err); !isStatus {
			err = s.GRPCStatus(err)
		}
		call.release()
		s.end(call, http.MethodPost, code)
		// All that is left is to send the response.
		call.response.abortAfter(s.messageTimeout)
	}()
	return handle()
}

// healthCheck is public, like /healthz.
const healthCheck = "/grpc.health.v1.Health/Check"

// newGRPCCall is a gRPC call whose caller has not been authenticated yet.
func (s *Server) newGRPCCall(request *http.Request) *call {
	path := request.URL.Path
	c := &call{
		id: newID(), started: time.Now(), source: auth.SourceOf(request, s.Proxy), record: &auth.Record{},
		// A client can send any number of method names that do not exist.
		public: path == healthCheck, route: func() string { return "" }, release: func() {},
	}
	if row, known := operation.Lookup(path); known {
		c.route, c.stream, c.record = func() string { return path }, row.Stream == operation.AlwaysStream, row.Record()
	}
	return c
}

// addObject adds the namespace and name in a message to the audit record.
func addObject(record *auth.Record, message any) {
	if named, is := message.(interface{ GetNamespace() string }); is {
		record.Namespace = named.GetNamespace()
	}
	if named, is := message.(interface{ GetName() string }); is {
		record.Name = named.GetName()
	}
}

// httpCodes maps gRPC codes to HTTP status codes.
var httpCodes = map[codes.Code]int{
	codes.OK: http.StatusOK, codes.Canceled: 499, codes.InvalidArgument: http.StatusBadRequest, codes.OutOfRange: http.StatusBadRequest,
	codes.FailedPrecondition: http.StatusBadRequest, codes.Unauthenticated: http.StatusUnauthorized, codes.PermissionDenied: http.StatusForbidden,
	codes.NotFound: http.StatusNotFound, codes.AlreadyExists: http.StatusConflict, codes.Aborted: http.StatusConflict,
	codes.ResourceExhausted: http.StatusTooManyRequests, codes.Unimplemented: http.StatusNotImplemented, codes.Unavailable: http.StatusServiceUnavailable,
	codes.DeadlineExceeded: http.StatusGatewayTimeout,
}

// codeOf returns the HTTP status code of an error, for the audit log and the metrics.
func codeOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if st, is := status.FromError(err); is {
		if code, known := httpCodes[st.Code()]; known {
			return code
		}
		return http.StatusInternalServerError
	}
	return apierror.From(err).Code
}
