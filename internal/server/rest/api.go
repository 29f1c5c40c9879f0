// SPDX-License-Identifier: Apache-2.0

// Package rest is the server's REST API. Jobs have the same JSON form as in kubectl. The
// handlers and the OpenAPI document come from one table of routes.
package rest

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/operation"
	"github.com/trireme-mpi/trireme/internal/server/stream"
)

// Options of the API.
type Options struct {
	// CallTimeout is the timeout of requests, LogTimeout that of reading logs without
	// following them. Streams have none.
	CallTimeout, LogTimeout time.Duration
	// AllowedOrigins are the other origins whose pages may open WebSockets.
	AllowedOrigins []string
	Clock          clock.PassiveClock
	// Version of the server, for the OpenAPI document.
	Version string
	// Log gets errors that the client did not cause; nil discards them.
	Log *slog.Logger
}

// API handles REST requests. Each request has a caller (auth.WithCaller).
type API struct {
	Options
	service  jobservice.Interface
	mux      *http.ServeMux
	document []byte
	// bodyGrace is how much longer than CallTimeout a body may take to arrive.
	bodyGrace time.Duration
}

const bodyGrace = 5 * time.Second

// New creates the API of a service.
func New(service jobservice.Interface, options Options) (*API, error) {
	api := &API{Options: options, service: service, mux: http.NewServeMux(), bodyGrace: bodyGrace}
	if api.Log == nil {
		api.Log = slog.New(slog.DiscardHandler)
	}
	routes := allRoutes()
	document, err := newDocument(routes, options.Version)
	if err != nil {
		return nil, err
	}
	api.document = document
	for _, route := range routes {
		pattern := route.method + " " + route.path
		row, known := operation.Lookup(pattern)
		if !known {
			return nil, fmt.Errorf("the route %s has no row in the table of operations", pattern)
		}
		route.operation = row
		api.mux.Handle(pattern, api.serve(route))
	}
	return api, nil
}

// ServeHTTP handles a request.
func (a *API) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if !isClean(request.URL.EscapedPath()) {
		a.fail(writer, request, apierror.Invalid("path", "has empty segments, . or .."))
		return
	}
	if _, pattern := a.mux.Handler(request); pattern == "" {
		a.notFound(writer, request)
		return
	}
	a.mux.ServeHTTP(writer, request)
}

// isClean tells whether a path is in its shortest form. For other paths the mux would
// redirect, instead of an error.
func isClean(escaped string) bool {
	cleaned := path.Clean("/" + escaped)
	return escaped == cleaned || escaped == cleaned+"/"
}

// Document serves the OpenAPI document, which is public.
func (a *API) Document() http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) { send(writer, http.StatusOK, a.document) })
}

// notFound responds to requests that no route matches.
func (a *API) notFound(writer http.ResponseWriter, request *http.Request) {
	allowed := allowedMethods(request, a.mux)
	if len(allowed) == 0 {
		a.fail(writer, request, apierror.New(http.StatusNotFound, "NotFound", "No route matches "+request.URL.Path, "See the API document: GET /openapi.json"))
		return
	}
	writer.Header().Set("Allow", strings.Join(allowed, ", "))
	a.fail(writer, request, apierror.New(http.StatusMethodNotAllowed, "MethodNotAllowed", "Method "+request.Method+" is not allowed for "+request.URL.Path, "See the API document: GET /openapi.json"))
}

// allowedMethods returns the methods that a path has.
func allowedMethods(request *http.Request, mux *http.ServeMux) (allowed []string) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := request.Clone(request.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

// input is a request to one route.
type input struct {
	*http.Request
	route *route
	query *query
}

// context returns the context of the request.
func (in *input) context() context.Context { return in.Context() }

// serve returns the handler of a route.
func (a *API) serve(route *route) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		in := &input{Request: request, route: route, query: newQuery(request)}
		if err := in.check(); err != nil {
			a.fail(writer, request, err)
			return
		}
		if limit := a.timeout(route, in); limit > 0 {
			ctx, stop := context.WithTimeout(request.Context(), limit)
			defer stop()
			in.Request = request.WithContext(ctx)
		}
		if route.body != nil {
			// Reading a body does not end with the context. The deadline is longer, so
			// that the context ends the call first.
			_ = http.NewResponseController(writer).SetReadDeadline(time.Now().Add(a.CallTimeout + a.bodyGrace))
		}
		if route.stream != nil {
			route.stream(a, writer, in)
			return
		}
		response, err := route.handle(a, in)
		if err != nil {
			a.fail(writer, request, err)
			return
		}
		a.reply(writer, request, route.success, response)
	})
}

// timeout returns the timeout of a request; 0 for none.
func (a *API) timeout(route *route, in *input) time.Duration {
	switch {
	case route.operation.Stream == operation.NoStream:
		return a.CallTimeout
	case route.operation.Stream == operation.StreamOnFollow && !in.query.flag("follow"):
		return a.LogTimeout
	default:
		return 0
	}
}

// sendStream sends messages to a client, over WebSocket or server-sent events.
func (a *API) sendStream(writer http.ResponseWriter, in *input, messages func(context.Context) iter.Seq2[stream.Message, error]) {
	stream.Serve(writer, in.Request, stream.Options{AllowedOrigins: a.AllowedOrigins}, messages)
}

// check refuses unknown or invalid parameters and names.
func (in *input) check() error {
	if err := in.query.check(in.route.parameters); err != nil {
		return err
	}
	if err := checkName("namespace", in.namespace()); err != nil {
		return err
	}
	return checkName("name", in.PathValue("name"))
}
