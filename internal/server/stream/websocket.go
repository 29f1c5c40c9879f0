// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"crypto/fips140"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/coder/websocket"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// Protocol is the subprotocol that clients may offer in Sec-WebSocket-Protocol. They must
// if they send their token there: browsers require that the server selects one of the
// offered protocols, and the token must not be sent back.
const Protocol = "trireme.v1"

// bearerProtocol is the prefix of the token, as in Kubernetes.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// maxFrame is the maximum size of a client's frame. Clients only send control frames.
const maxFrame = 4 << 10

type webSocket struct {
	connection *websocket.Conn
	options    Options
}

// acceptWebSocket responds to the handshake.
func acceptWebSocket(writer http.ResponseWriter, request *http.Request, options Options, disconnected context.CancelCauseFunc) (sink, *apierror.Error) {
	if offersOnlyToken(request) {
		return nil, apierror.New(http.StatusBadRequest, "BadRequest", "Sec-WebSocket-Protocol has a token but no protocol", "Offer "+Protocol+" as well")
	}
	response := &handshake{ResponseWriter: writer}
	var connection *websocket.Conn
	var err error
	// The handshake has a SHA-1 sum, which protects nothing; fips140=only would panic.
	fips140.WithoutEnforcement(func() {
		// The origin has been checked.
		connection, err = websocket.Accept(response, request, &websocket.AcceptOptions{Subprotocols: []string{Protocol}, InsecureSkipVerify: true})
	})
	if err != nil {
		return nil, apierror.New(response.code(), "BadRequest", err.Error(), "See RFC 6455 for the handshake of a WebSocket")
	}
	connection.SetReadLimit(maxFrame)
	go listen(connection, disconnected)
	return &webSocket{connection: connection, options: options}, nil
}

// listen handles control frames, and detects when the client disconnects or sends a
// message.
func listen(connection *websocket.Conn, disconnected context.CancelCauseFunc) {
	// Not the request's context: the connection must stay open until the close frame is
	// sent.
	if _, _, err := connection.Reader(context.Background()); err != nil {
		disconnected(errClientClosed)
		return
	}
	disconnected(errClientMessage)
}

func offersOnlyToken(request *http.Request) bool {
	token, other := false, false
	for _, header := range request.Header.Values("Sec-WebSocket-Protocol") {
		for offered := range strings.SplitSeq(header, ",") {
			switch offered = strings.TrimSpace(offered); {
			case strings.HasPrefix(offered, bearerProtocol):
				token = true
			case offered == Protocol:
				other = true
			}
		}
	}
	return token && !other
}

// handshake holds back the library's response to an invalid handshake, which is not in the
// form of an API error.
type handshake struct {
	http.ResponseWriter
	refused int
}

func (h *handshake) WriteHeader(code int) {
	if code < http.StatusBadRequest {
		h.ResponseWriter.WriteHeader(code)
		return
	}
	h.refused = code
}

func (h *handshake) Write(text []byte) (int, error) {
	if h.refused != 0 {
		return len(text), nil
	}
	return h.ResponseWriter.Write(text)
}

// Unwrap returns the wrapped writer.
func (h *handshake) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h *handshake) code() int {
	if h.refused == 0 {
		return http.StatusBadRequest
	}
	return h.refused
}

func (w *webSocket) send(message Message) error { return w.aside(message.JSON) }

func (w *webSocket) aside(text json.RawMessage) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.options.WriteTimeout)
	defer cancel()
	if w.connection.Write(ctx, websocket.MessageText, text) != nil {
		return errClientClosed
	}
	return nil
}

func (w *webSocket) end(err error) {
	code, failed := closeCode(err)
	if failed == errClientClosed {
		_ = w.connection.CloseNow()
		return
	}
	reason := ""
	if failed != nil {
		reason = failed.Reason
		_ = w.aside(errorMessage(failed))
	}
	// A client that does not respond is disconnected.
	_ = w.connection.Close(code, reason)
}

// startOver is the close code of a stream that cannot be resumed.
const (
	privateCodeBase = 4000
	startOver       = privateCodeBase + http.StatusGone
)

// closeCode returns the close code, and the error to send before.
func closeCode(err error) (websocket.StatusCode, *apierror.Error) {
	if err == nil {
		return websocket.StatusNormalClosure, nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return websocket.StatusGoingAway, nil
	}
	failed := apierror.From(err)
	if failed == errClientMessage {
		return websocket.StatusPolicyViolation, failed
	}
	switch failed.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return websocket.StatusPolicyViolation, failed
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return websocket.StatusTryAgainLater, failed
	case http.StatusInternalServerError:
		return websocket.StatusInternalError, failed
	default:
		return websocket.StatusCode(privateCodeBase + failed.Code), failed
	}
}
