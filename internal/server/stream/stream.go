// Package stream tells clients messages in their order as long as they like, over
// WebSocket or as server-sent events (SSE): the same path speaks both, by what the
// request asks for.
//
// Each message is a JSON object. Besides those of the caller there are
//
//	{"type":"HEARTBEAT","timestamp":"..."}                   while nothing else happens
//	{"type":"ERROR","code":410,"reason":"...","message":"...", ...}  as the last one
//
// A WebSocket is then closed with one of these codes:
//
//	1000  there is no more to tell
//	1001  the server stops: connect again, and resume
//	1008  the credentials hold no longer, or the client sent something: nothing is
//	      expected from it but control frames
//	1011  the server failed
//	1013  the server, or the cluster, has too much to do: try again later
//	4410  start over: what happened since the last message is not known
//	4000 + HTTP's code for every other error
//
// Over SSE the response ends. Each event has as its id what to resume with, which
// browsers send as Last-Event-ID by themselves. An error of code 410 takes the id
// away, so that they start over by themselves, too.
//
// A client that does not read is cut off when a message cannot be written in time.
// Nothing is gathered for it meanwhile: the caller's iterator is not asked for more.
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

// Options are how to tell it.
type Options struct {
	// Heartbeat is how often there is one; 0 is 15 s.
	Heartbeat time.Duration
	// WriteTimeout is how long a client may take to accept a message; 0 is 10 s.
	WriteTimeout time.Duration
	// AllowedOrigins are those besides the server's own from which browsers may
	// connect, as https://host:port.
	AllowedOrigins []string
}

func (o *Options) setDefaults() {
	for value, preset := range map[*time.Duration]time.Duration{&o.Heartbeat: 15 * time.Second, &o.WriteTimeout: 10 * time.Second} {
		if *value == 0 {
			*value = preset
		}
	}
}

// Serve tells messages until there are no more, or the client goes away: then the
// context that they are made with ends. It also ends with the request's, and the client
// learns the cause: a server must end the contexts of its requests when it stops, and
// when who calls may no longer listen.
func Serve(writer http.ResponseWriter, request *http.Request, options Options, messages func(context.Context) iter.Seq2[Message, error]) {
	options.setDefaults()
	ctx, cancel := context.WithCancelCause(request.Context())
	defer cancel(nil)
	sink, refused := connect(writer, request, options, cancel)
	if refused != nil {
		refuse(writer, refused)
		return
	}
	// Also if whatever makes the messages panics: nobody else closes a WebSocket.
	defer sink.end(errClientClosed)
	connection := &connection{sink: sink, options: options}
	var keeping sync.WaitGroup
	keeping.Go(func() {
		if err := connection.sendHeartbeats(ctx); err != nil {
			cancel(err)
		}
	})
	err := connection.sendAll(messages(ctx))
	// When the context ends the messages do, too, and they do not know why.
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	keeping.Wait()
	sink.end(err)
}

// sink is where messages go. It can be used by several at once.
type sink interface {
	// send returns when a message is on its way, or cannot be.
	send(Message) error
	// aside is like send, but leaves what to resume with as it is.
	aside(json.RawMessage) error
	// end says why there is no more; nil is that all was told. Nothing can be sent
	// after it.
	end(error)
}

// connect finds out what the client speaks.
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

// originAllowed: only browsers send an origin, and they send that of the page.
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

// refuse answers instead of a stream.
func refuse(writer http.ResponseWriter, refused *apierror.Error) {
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(refused.Code)
	// Whoever does not listen any more need not be told.
	_ = json.NewEncoder(writer).Encode(refused)
}

var (
	// errGone: the client does not listen any more.
	errClientClosed = apierror.New(499, "Canceled", "The client closed the connection")
	// errSpoke: the client sent a message.
	errClientMessage = apierror.New(http.StatusBadRequest, "BadRequest", "The client sent a message, but this stream takes none", "Reconnect and only read")
)
