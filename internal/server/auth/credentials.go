// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"encoding/base64"
	"net"
	"net/http"
	"strings"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// tokenProtocolPrefix is how browsers send a token with a WebSocket, which cannot have
// other headers. Kubernetes clients do the same.
const tokenProtocolPrefix = "base64url.bearer.authorization.k8s.io."

// tokenOf returns the token of a request; "" if it has none. A token in the URL is
// ignored, because it would be in the logs of every proxy.
func tokenOf(request *http.Request) (string, error) {
	switch headers := request.Header.Values("Authorization"); len(headers) {
	case 0:
	case 1:
		scheme, token, _ := strings.Cut(headers[0], " ")
		if token = strings.TrimSpace(token); strings.EqualFold(scheme, "Bearer") && token != "" {
			return checkToken(token)
		}
	default:
		// A proxy may have checked the other header.
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

// checkToken refuses characters that no valid token has.
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

// invalidToken is the error for invalid or expired credentials.
func invalidToken() *apierror.Error {
	return unauthorized("Authentication failed: the token is invalid or expired", "Get a new token, and send it as Authorization: Bearer TOKEN")
}

// SourceOf returns the address of the client. The proxy's header is only used if the proxy
// is trusted; nil trusts none.
func SourceOf(request *http.Request, proxy *Proxy) string {
	if proxy.Trusts(request) {
		// The last address is the one that the proxy saw itself; the others come from its
		// client.
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
