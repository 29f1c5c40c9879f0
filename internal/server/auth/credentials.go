package auth

import (
	"encoding/base64"
	"net"
	"net/http"
	"strings"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// protocolWithToken is how browsers send a token with a WebSocket, which they cannot
// give other headers. Kubernetes' own clients do the same.
const tokenProtocolPrefix = "base64url.bearer.authorization.k8s.io."

// tokenOf is the token of a request; "" if it has none. A token in an address would
// end up in the logs of every proxy on the way, so it is not looked for there.
func tokenOf(request *http.Request) (string, error) {
	switch headers := request.Header.Values("Authorization"); len(headers) {
	case 0:
	case 1:
		scheme, token, _ := strings.Cut(headers[0], " ")
		if token = strings.TrimSpace(token); strings.EqualFold(scheme, "Bearer") && token != "" {
			return checkToken(token)
		}
	default:
		// Whoever is on the way may have looked at another of them.
		return "", unauthorized("The request has more than one Authorization header", "Send one token, as Authorization: Bearer TOKEN")
	}
	for _, header := range request.Header.Values("Sec-WebSocket-Protocol") {
		for protocol := range strings.SplitSeq(header, ",") {
			encoded, is := strings.CutPrefix(strings.TrimSpace(protocol), tokenProtocolPrefix)
			if !is {
				continue
			}
			token, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(encoded, "="))
			if err != nil || len(token) == 0 {
				return "", unauthorized("The token in Sec-WebSocket-Protocol is not base64url",
					"Send the protocol "+tokenProtocolPrefix+"TOKEN, with the token in base64url and without padding")
			}
			return checkToken(string(token))
		}
	}
	return "", nil
}

// checked refuses what no header could carry, and no authority gives out.
func checkToken(token string) (string, error) {
	if strings.ContainsFunc(token, func(letter rune) bool { return letter <= ' ' || letter > '~' }) {
		return "", unauthorized("The token has invalid characters", "Send a token of the cluster as Authorization: Bearer TOKEN")
	}
	return token, nil
}

func unauthorized(message string, suggestions ...string) *apierror.Error {
	return apierror.New(http.StatusUnauthorized, "Unauthorized", message, suggestions...)
}

// noToken is the error for a request without credentials.
func noToken(suggestion string) *apierror.Error {
	return unauthorized("Authentication failed: the request has no token", suggestion)
}

// invalidToken is the error for credentials that do not hold.
func invalidToken() *apierror.Error {
	return unauthorized("Authentication failed: the token is invalid or expired", "Get a new token, and send it as Authorization: Bearer TOKEN")
}

// SourceOf is the address that a request came from. What a proxy says of it counts
// only if the proxy is trusted; nil trusts none.
func SourceOf(request *http.Request, proxy *Proxy) string {
	if proxy.Trusts(request) {
		// The last one is the address that the proxy saw itself; those before it are what
		// it was told.
		addresses := strings.Split(strings.Join(request.Header.Values("X-Forwarded-For"), ","), ",")
		if last := strings.TrimSpace(addresses[len(addresses)-1]); net.ParseIP(last) != nil {
			return last
		}
	}
	if host, _, err := net.SplitHostPort(request.RemoteAddr); err == nil {
		return host
	}
	return request.RemoteAddr
}
