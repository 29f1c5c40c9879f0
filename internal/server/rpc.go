package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/trireme-mpi/trireme/internal/access"
	"github.com/trireme-mpi/trireme/internal/problem"
)

// requestKey is under which a call over gRPC knows the request that brought it.
type requestKey struct{}

func (server *Server) newRPC() *grpc.Server {
	made := grpc.NewServer(append(server.tracing.rpc(),
		grpc.MaxRecvMsgSize(maxBody),
		grpc.UnaryInterceptor(server.unary),
		grpc.StreamInterceptor(server.streaming),
	)...)
	server.RPC(made)
	return made
}

// unary does for a call with one answer what the handlers of HTTP do.
func (server *Server) unary(ctx context.Context, message any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	call := server.newRPCCall(ctx, info.FullMethod, false)
	fillFrom(call.record, message)
	err = server.around(ctx, call, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		answer, err = handle(ctx, message)
		return err
	})
	return answer, err
}

// streaming does the same for a stream.
func (server *Server) streaming(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx := stream.Context()
	return server.around(ctx, server.newRPCCall(ctx, info.FullMethod, true), func(ctx context.Context) error {
		err := handle(service, &supervised{ServerStream: stream, ctx: ctx})
		if cause, is := errors.AsType[*problem.Error](context.Cause(ctx)); is {
			return cause
		}
		return err
	})
}

// supervised is a stream whose context knows who calls.
type supervised struct {
	grpc.ServerStream
	ctx context.Context
}

// Context of the call.
func (stream *supervised) Context() context.Context { return stream.ctx }

// around lets a call in, makes it, and notes how it ended. Errors become what clients
// of gRPC see.
func (server *Server) around(ctx context.Context, call *call, make func(context.Context) error) (err error) {
	begun := time.Now()
	server.metrics.inFlight.Inc()
	defer func() {
		server.metrics.inFlight.Dec()
		if panicked := recover(); panicked != nil {
			err = server.panicked(call, panicked)
		}
		code := codeOf(err)
		if code >= http.StatusInternalServerError {
			server.Log.Error("call failed", "error", err.Error(), "code", code, "method", call.route(), "requestID", call.id)
		}
		if _, told := status.FromError(err); !told {
			err = server.RPCStatus(err)
		}
		server.end(call, http.MethodPost, code, time.Since(begun))
	}()
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-request-id", call.id))
	request := ctx.Value(requestKey{}).(*http.Request)
	if err := server.knownHost(request); err != nil {
		return err
	}
	ctx, leave, err := server.admit(ctx, request, call)
	if err != nil {
		if limited, is := errors.AsType[*tooMany](err); is {
			_ = grpc.SetHeader(request.Context(), metadata.Pairs("retry-after", limited.retryAfter()))
		}
		return err
	}
	defer leave()
	return make(ctx)
}

// changing are the beginnings of the names of methods that change something.
var changing = map[string]string{"Create": "create", "Delete": "delete", "Suspend": "patch", "Resume": "patch", "Restart": "create"}

// healthCheck is for everybody, as /healthz is.
const healthCheck = "/grpc.health.v1.Health/Check"

// newRPCCall is what is known of a call by its method.
func (server *Server) newRPCCall(ctx context.Context, method string, stream bool) *call {
	made := &call{
		source: access.SourceOf(ctx.Value(requestKey{}).(*http.Request), server.Proxy), stream: stream, record: &access.Record{},
		open: method == healthCheck, route: func() string { return method },
	}
	made.id = newID()
	name := method[strings.LastIndex(method, "/")+1:]
	for beginning, verb := range changing {
		if kind, is := strings.CutPrefix(name, beginning); is {
			made.record.Verb, made.record.Kind = verb, kind
		}
	}
	return made
}

// fillFrom adds what a message says of the object that is meant.
func fillFrom(record *access.Record, message any) {
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
	return problem.From(err).Code
}
