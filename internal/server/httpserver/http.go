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

// handler answers everything that comes to the one port. gRPC has its own way, which
// does the same with interceptors.
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
	// The mux would send clients elsewhere whose path is not tidy, such as a/../b.
	plain := http.Handler(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if s.isServerPath(request.URL.Path) {
			mux.ServeHTTP(writer, request)
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
	// What an answer took is given back when it has been written, also over gRPC.
	return s.answers.Handler(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if s.grpcServer != nil && request.ProtoMajor == 2 && strings.HasPrefix(request.Header.Get("Content-Type"), "application/grpc") {
			s.serveGRPC(writer, request)
			return
		}
		plain.ServeHTTP(writer, request)
	}))
}

// recorded gives each request a name, and notes how it ended, also if it ended in a
// panic. It is the only one that writes audit lines and metrics of HTTP.
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
			// Those who work on a copy know it; tracing names spans by it.
			request.Pattern = call.route()
			code := max(recorder.code, http.StatusOK)
			if abort {
				// Whatever was said, it was not said to the end.
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

// sayGoodbye lets clients find another server while this one still answers: after this
// call they connect anew, and nothing is on its way when the connection is closed.
func (s *Server) closeWhenStopping(writer http.ResponseWriter) {
	if s.health.stopping.Load() {
		writer.Header().Set("Connection", "close")
	}
}

// rescue answers for a handler that panicked. If a part of the answer is on its way,
// the connection must be cut: a client would take it for the whole.
func (s *Server) recoverPanic(recorder *recorder, request *http.Request, call *call, panicked any) (abort bool) {
	if panicked == nil {
		return false
	}
	if panicked == http.ErrAbortHandler {
		return true
	}
	abort = recorder.code != 0
	s.writeError(recorder, request, s.logPanic(call, panicked))
	return abort
}

// panicked logs a mistake of the server's, of which clients learn nothing more.
func (s *Server) logPanic(call *call, panicked any) error {
	s.Log.Error("panic", "error", fmt.Sprint(panicked), "requestID", call.id, "stack", string(debug.Stack()))
	return fmt.Errorf("panic: %v", panicked)
}

// refuse answers with an error, unless something was answered already.
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

// bounded sets limits to how much a client sends, and how slowly it sends and reads.
func (s *Server) limitSizeAndTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.ContentLength > maxBody {
			s.writeError(writer.(*recorder), request, apierror.New(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge",
				fmt.Sprintf("The body has %d bytes; the maximum is %d", request.ContentLength, maxBody), "Remove what is not part of the job"))
			return
		}
		request.Body = http.MaxBytesReader(writer, request.Body, maxBody)
		controller := http.NewResponseController(writer)
		// A deadline of the call before on the same connection must not hold for a stream.
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

// admitted lets in who is known and asks for no more than their share.
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
