package access

import (
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/trireme-mpi/trireme/internal/problem"
)

// protocolWithToken is how browsers send a token with a WebSocket, which they cannot
// give other headers. Kubernetes' own clients do the same.
const protocolWithToken = "base64url.bearer.authorization.k8s.io."

// tokenOf is the token of a request; "" if it has none. A token in an address would
// end up in the logs of every proxy on the way, so it is not looked for there.
func tokenOf(request *http.Request) (string, error) {
	if header := request.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if token = strings.TrimSpace(token); strings.EqualFold(scheme, "Bearer") && token != "" {
			return token, nil
		}
	}
	for _, header := range request.Header.Values("Sec-WebSocket-Protocol") {
		for protocol := range strings.SplitSeq(header, ",") {
			encoded, is := strings.CutPrefix(strings.TrimSpace(protocol), protocolWithToken)
			if !is {
				continue
			}
			token, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(encoded, "="))
			if err != nil || len(token) == 0 || !utf8.Valid(token) {
				return "", unauthorized("The token in Sec-WebSocket-Protocol is not base64url",
					"Send the protocol "+protocolWithToken+"TOKEN, with the token in base64url and without padding")
			}
			return string(token), nil
		}
	}
	return "", nil
}

func unauthorized(message string, suggestions ...string) *problem.Error {
	return problem.New(http.StatusUnauthorized, "Unauthorized", message, suggestions...)
}

// noToken is the error for a request without credentials.
func noToken(suggestion string) *problem.Error {
	return unauthorized("No token came with the request, and without one nobody is let in", suggestion)
}

// invalidToken is the error for credentials that do not hold.
func invalidToken() *problem.Error {
	return unauthorized("The token is not valid, or not any more", "Get a new token, and send it as Authorization: Bearer TOKEN")
}

// SourceOf is the address that a request came from. What a proxy says of it counts
// only if the proxy is trusted; nil trusts none.
func SourceOf(request *http.Request, proxy *Proxy) string {
	if proxy.Trusts(request) {
		// The last one is the address that the proxy saw itself; those before it are what
		// it was told.
		said := strings.Split(strings.Join(request.Header.Values("X-Forwarded-For"), ","), ",")
		if last := strings.TrimSpace(said[len(said)-1]); net.ParseIP(last) != nil {
			return last
		}
	}
	if host, _, err := net.SplitHostPort(request.RemoteAddr); err == nil {
		return host
	}
	return request.RemoteAddr
}
