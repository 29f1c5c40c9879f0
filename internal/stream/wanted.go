package stream

import (
	"net/http"
	"strings"
)

// IsWanted tells whether a client asks for a stream: as a WebSocket, or as
// server-sent events.
func IsWanted(request *http.Request) bool {
	return strings.EqualFold(request.Header.Get("Upgrade"), "websocket") || wantsEvents(request.Header.Values("Accept"))
}
