// SPDX-License-Identifier: Apache-2.0

// Package stream sends messages in order, over WebSocket or as server-sent events (SSE):
// the same path supports both, depending on the request.
//
// Each message is a JSON object. Besides those of the caller there are
//
//	{"type":"HEARTBEAT","timestamp":"..."}                           in regular intervals
//	{"type":"ERROR","code":410,"reason":"...","message":"...", ...}  as the last one
//
// A WebSocket is then closed with one of these codes:
//
//	1000  the stream is complete
//	1001  the server is shutting down: reconnect and resume
//	1008  the credentials are no longer valid, or the client sent a message: only
//	      control frames are expected
//	1011  internal server error
//	1013  the server or the cluster is overloaded: retry later
//	4410  start over: the changes since the last message are not available
//	4000 + the HTTP status code, for every other error
//
// Over SSE the response ends. The id of each event is what to resume with; browsers send
// it as Last-Event-ID by themselves. An error with code 410 clears the id, so that they
// also start over by themselves.
//
// A client that does not read is disconnected when a message cannot be written in time.
// Nothing is buffered for it: the next message is only requested after the last one was
// written.
package stream

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// Options of a stream.
type Options struct {
	// Heartbeat is the interval of heartbeats; 0 means 15 s.
	Heartbeat time.Duration
	// WriteTimeout is how long a client may take to accept a message; 0 means 10 s.
	WriteTimeout time.Duration
	// AllowedOrigins are other origins from which browsers may connect, as
	// https://host:port.
	AllowedOrigins []string
}

func (o *Options) setDefaults() {
	for value, preset := range map[*time.Duration]time.Duration{&o.Heartbeat: 15 * time.Second, &o.WriteTimeout: 10 * time.Second} {
		if *value == 0 {
			*value = preset
		}
	}
}

// Serve sends messages until there are no more, or the client disconnects, which ends the
// context of the messages. The stream also ends with the request's context, and the client
// gets the cause: a server must end the contexts of its requests when it shuts down, and
// when the caller's credentials are no longer valid.
func Serve(writer http.ResponseWriter, request *http.Request, options Options, messages func(context.Context) iter.Seq2[Message, error]) {
	options.setDefaults()
	ctx, cancel := context.WithCancelCause(request.Context())
	defer cancel(nil)
	sink, refused := connect(writer, request, options, cancel)
	if refused != nil {
		refuse(writer, refused)
		return
	}
	// Also if producing the messages panics: nothing else closes a WebSocket.
	defer sink.end(errClientClosed)
	connection := &connection{sink: sink, options: options}
	var keeping sync.WaitGroup
	keeping.Go(func() {
		if err := connection.sendHeartbeats(ctx); err != nil {
			cancel(err)
		}
	})
	err := connection.sendAll(messages(ctx))
	// When the context ends, the messages end without an error.
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	keeping.Wait()
	sink.end(err)
}

// sink sends messages. It is safe for concurrent use.
type sink interface {
	// send returns when a message is written, or cannot be.
	send(Message) error
	// aside is like send, but does not change the ID to resume with.
	aside(json.RawMessage) error
	// end sends the reason of the end; nil means complete. Nothing can be sent after it.
	end(error)
}

// connect chooses WebSocket or server-sent events.
func connect(writer http.ResponseWriter, request *http.Request, options Options, disconnected context.CancelCauseFunc) (sink, *apierror.Error) {
	if origin := request.Header.Get("Origin"); !originAllowed(origin, request.Host, options.AllowedOrigins) {
		return nil, apierror.New(http.StatusForbidden, "Forbidden", "Origin "+origin+" is not allowed to connect to this server", "Ask the administrator to allow the origin")
	}
	switch {
	case isWebSocket(request):
		return acceptWebSocket(writer, request, options, disconnected)
	case isEventStream(request):
		return startEvents(writer, options)
	default:
		return nil, apierror.New(http.StatusNotAcceptable, "NotAcceptable", "This path is a stream",
			"Connect with a WebSocket", "Send Accept: text/event-stream")
	}
}

// originAllowed checks the origin of a page. Only browsers send an origin.
func originAllowed(origin, host string, allowed []string) bool {
	if origin == "" {
		return true
	}
	parsed, err := url.Parse(origin)
	if err != nil || parsed.Host == "" {
		return false
	}
	return strings.EqualFold(parsed.Host, host) ||
		slices.ContainsFunc(allowed, func(one string) bool { return strings.EqualFold(strings.TrimSuffix(one, "/"), origin) })
}

// refuse responds with an error instead of a stream.
func refuse(writer http.ResponseWriter, refused *apierror.Error) {
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(refused.Code)
	// A client that has disconnected is not an error.
	_ = json.NewEncoder(writer).Encode(refused)
}

var (
	// errClientClosed: the client disconnected.
	errClientClosed = apierror.New(499, "Canceled", "The client closed the connection")
	// errClientMessage: the client sent a message.
	errClientMessage = apierror.New(http.StatusBadRequest, "BadRequest", "The client sent a message, but this stream takes none", "Reconnect and only read")
)
