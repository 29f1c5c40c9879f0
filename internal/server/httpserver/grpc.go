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
func (s *Server) newGRPC() error {
	s.grpcServer = grpc.NewServer(slices.Concat(s.tracing.grpc(), s.GRPCOptions, []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxBody),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.streaming),
	})...)
	s.RegisterGRPC(s.grpcServer)
	// A server without services: every call is one that it does not know, and needs no
	// message to be refused.
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

// serveRPC lets a call in before anything of its message is read, and notes how it
// ended if nobody else does: gRPC refuses some by itself, such as a message that is
// too large.
func (s *Server) serveGRPC(writer http.ResponseWriter, request *http.Request) {
	call := s.newGRPCCall(request)
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	writer.Header().Set("X-Request-Id", call.id)
	s.closeWhenStopping(writer)
	// What a client sends is gathered in memory, read or not. Nobody sends more than one
	// message, and nobody for long.
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

// answeredCode is HTTP's code of what gRPC answered by itself.
func responseCode(call *call, header http.Header) int {
	if call.refusal != nil {
		return codeOf(call.refusal)
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

// unary does for a call with one answer what the handlers of HTTP do.
func (s *Server) unary(ctx context.Context, message any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	call := callFrom(ctx)
	err = s.runCall(call, func() error {
		addObject(call.record, message)
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
	return s.runCall(call, func() error {
		// Not the request's context, with which the way to the client would end.
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

// supervised is a stream whose context ends when the stream should, and whose client
// must read.
type supervisedStream struct {
	grpc.ServerStream
	ctx          context.Context
	response     *grpcResponse
	writeTimeout time.Duration
}

// Context of the call.
func (s *supervisedStream) Context() context.Context { return s.ctx }

// SendMsg waits for the message before to be on its way, and not for ever.
func (s *supervisedStream) SendMsg(message any) error {
	defer s.response.abortAfter(s.writeTimeout)()
	return s.ServerStream.SendMsg(message)
}

// rpcAnswer is the answer to a call over gRPC, while it is written.
type grpcResponse struct {
	mutex sync.Mutex
	// control is nil once the answer has ended.
	control *http.ResponseController
}

// cutAfter gives the answer up after some time, unless the returned function is called
// before: what is written can wait for a client that does not read for as long as it
// is connected.
func (r *grpcResponse) abortAfter(limit time.Duration) (stop func()) {
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
func (r *grpcResponse) end() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.control = nil
}

// around makes a call, and notes how it ended. Errors become what clients of gRPC see.
func (s *Server) runCall(call *call, handle func() error) (err error) {
	if !call.startRecording() {
		// The client has gone before the call began, and that was noted.
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
		// What is left is to tell the client.
		call.response.abortAfter(s.messageTimeout)
	}()
	return handle()
}

// healthCheck is for everybody, as /healthz is.
const healthCheck = "/grpc.health.v1.Health/Check"

// newRPCCall is a gRPC call whose caller has not been authenticated yet.
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

// fillFrom adds what a message says of the object that is meant.
func addObject(record *auth.Record, message any) {
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
	if st, is := status.FromError(err); is {
		if code, known := httpCodes[st.Code()]; known {
			return code
		}
		return http.StatusInternalServerError
	}
	return apierror.From(err).Code
}
