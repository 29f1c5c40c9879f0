package stream

import (
	"net/http"
	"strings"
)

// Message is one of a stream.
type Message struct {
	// ID is what a client resumes with; empty where that is not possible.
	ID string
	// JSON of the message.
	JSON []byte
}

// IsWanted tells whether a client asks for a stream: as a WebSocket, or as
// server-sent events.
func IsRequested(request *http.Request) bool { return isWebSocket(request) || isEventStream(request) }

func isWebSocket(request *http.Request) bool {
	return strings.EqualFold(request.Header.Get("Upgrade"), "websocket")
}

func isEventStream(request *http.Request) bool {
	return strings.Contains(request.Header.Get("Accept"), "text/event-stream")
}
