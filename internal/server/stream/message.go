// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"net/http"
	"strings"
)

// Message of a stream.
type Message struct {
	// ID is what a client resumes with; empty if it cannot resume here.
	ID string
	// JSON of the message.
	JSON []byte
}

// IsRequested tells whether a client requests a stream: a WebSocket or server-sent events.
func IsRequested(request *http.Request) bool { return isWebSocket(request) || isEventStream(request) }

func isWebSocket(request *http.Request) bool {
	return strings.EqualFold(request.Header.Get("Upgrade"), "websocket")
}

func isEventStream(request *http.Request) bool {
	return strings.Contains(request.Header.Get("Accept"), "text/event-stream")
}
