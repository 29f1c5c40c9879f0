// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// handler serves REST, streams and gRPC on one port. gRPC does in interceptors what the
// middlewares here do.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	s.health.register(mux)
	mux.HandleFunc("GET /version", func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(writer, "{\"version\":%q}\n", s.Version)
	})
	for path, handler := range s.Public {
		mux.Handle("GET "+path, handler)
	}
	// The mux would redirect clients with unclean paths, such as a/../b.
	plain := http.Handler(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if s.isServerPath(request.URL.Path) {
			mux.ServeHTTP(writer, request)
			return
		}
		if s.isPage(request) {
			request.Pattern = pagePattern
			s.Page.ServeHTTP(writer, request)
			return
		}
		s.API.ServeHTTP(writer, request)
	}))
	// The first is the outermost.
	for _, wrap := range slices.Backward([]func(http.Handler) http.Handler{
		s.tracing.http,
		s.recordCalls,
		s.checkOrigins,
		s.limitSizeAndTime,
		s.admitRequests,
	}) {
		plain = wrap(plain)
	}
	// The memory of a response is released when it has been written, also over gRPC.
	return s.answers.Handler(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if s.grpcServer != nil && request.ProtoMajor == 2 && strings.HasPrefix(request.Header.Get("Content-Type"), "application/grpc") {
			s.serveGRPC(writer, request)
			return
		}
		plain.ServeHTTP(writer, request)
	}))
}

// pagePattern is the route of the dashboard's files in metrics.
const pagePattern = "GET /"

// recordCalls gives each request an ID and records its result, also after a panic. Nothing
// else writes audit lines and metrics of HTTP requests.
func (s *Server) recordCalls(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		call := s.newCall(request)
		recorder := &recorder{ResponseWriter: writer}
		if call.stream {
			recorder.writeTimeout = s.writeTimeout
		}
		header := recorder.Header()
		header.Set("X-Request-Id", call.id)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if request.TLS != nil {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		s.closeWhenStopping(writer)
		s.metrics.inFlight.Inc()
		defer func() {
			s.metrics.inFlight.Dec()
			abort := s.recoverPanic(recorder, request, call, recover())
			recorder.finish()
			call.release()
			// Handlers that work on a copy of the request know the pattern; tracing names
			// spans by it.
			request.Pattern = call.route()
			code := max(recorder.code, http.StatusOK)
			if abort {
				// The response was started but not completed.
				code = http.StatusInternalServerError
			}
			s.end(call, request.Method, code)
			if abort {
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(recorder, request.WithContext(context.WithValue(request.Context(), callKey{}, call)))
	})
}

// closeWhenStopping makes clients reconnect to another server while this one shuts down:
// after this request they open a new connection, and no request is lost when the old one
// is closed.
func (s *Server) closeWhenStopping(writer http.ResponseWriter) {
	if s.health.stopping.Load() {
		writer.Header().Set("Connection", "close")
	}
}

// recoverPanic responds for a handler that panicked. If a part of the response is already
// sent, the connection must be aborted: otherwise the client takes it for a complete
// response.
func (s *Server) recoverPanic(recorder *recorder, request *http.Request, call *call, panicked any) (abort bool) {
	if panicked == nil {
		return false
	}
	if panicked == http.ErrAbortHandler { //nolint:errorlint // recover returns the value itself
		return true
	}
	abort = recorder.code != 0
	s.writeError(recorder, request, s.logPanic(call, panicked))
	return abort
}

// logPanic logs a panic. Clients only get an internal error.
func (s *Server) logPanic(call *call, panicked any) error {
	s.Log.Error("panic", "error", fmt.Sprint(panicked), "requestID", call.id, "stack", string(debug.Stack()))
	return fmt.Errorf("panic: %v", panicked)
}

// writeError responds with an error, unless a response has been started.
func (s *Server) writeError(recorder *recorder, request *http.Request, err error) {
	apiErr := apierror.From(err)
	if apiErr.Code >= http.StatusInternalServerError {
		s.Log.ErrorContext(request.Context(), "request failed", "error", err.Error(), "code", apiErr.Code, "path", request.URL.Path, "requestID", recorder.Header().Get("X-Request-Id"))
	}
	if recorder.code != 0 {
		return
	}
	if limited, is := errors.AsType[*limitError](err); is {
		s.metrics.refusals.WithLabelValues(limited.cause).Inc()
		recorder.Header().Set("Retry-After", limited.retryAfter())
	}
	writeAPIError(recorder, apiErr)
}

// limitSizeAndTime limits how much a client sends, and how slowly it sends and reads.
func (s *Server) limitSizeAndTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.ContentLength > maxBody {
			s.writeError(writer.(*recorder), request, apierror.New(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge",
				fmt.Sprintf("The body has %d bytes; the maximum is %d", request.ContentLength, maxBody), "Remove what is not part of the job"))
			return
		}
		request.Body = http.MaxBytesReader(writer, request.Body, maxBody)
		controller := http.NewResponseController(writer)
		// A stream must not inherit the deadline of the previous request on its
		// connection.
		var read, write time.Time
		if !callFrom(request.Context()).stream {
			write = time.Now().Add(maxCallDuration)
			read = write
		}
		if request.ContentLength != 0 {
			read = time.Now().Add(s.bodyTimeout)
		}
		_ = controller.SetReadDeadline(read)
		_ = controller.SetWriteDeadline(write)
		next.ServeHTTP(writer, request)
	})
}

// admitRequests authenticates requests and applies the limits.
func (s *Server) admitRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		call := callFrom(request.Context())
		ctx, err := s.admit(request.Context(), request, call)
		if err == nil {
			err = s.limitLargeBody(request, call)
		}
		if err != nil {
			s.writeError(writer.(*recorder), request, err)
			return
		}
		if call.stream && !call.public {
			var stop func()
			ctx, stop = s.supervise(ctx, call.caller)
			defer stop()
		}
		request = request.WithContext(ctx)
		call.route = func() string { return request.Pattern }
		next.ServeHTTP(writer, request)
	})
}
