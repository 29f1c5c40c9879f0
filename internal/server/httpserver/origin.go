// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// checkOrigins refuses requests that web pages of other origins make a browser send: by
// DNS rebinding, or with the session of a proxy. Pages of allowed origins may read the
// responses.
func (s *Server) checkOrigins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if err := s.checkOrigin(request); err != nil {
			s.writeError(writer.(*recorder), request, err)
			return
		}
		if s.allowOrigin(writer.Header(), request) && request.Method == http.MethodOptions {
			writer.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(writer, request)
	})
}

// allowOrigin sets the CORS headers if the origin is allowed. Credentials of the browser
// are not allowed: a page must send a token.
func (s *Server) allowOrigin(header http.Header, request *http.Request) bool {
	header.Add("Vary", "Origin")
	origin := request.Header.Get("Origin")
	if !slices.Contains(s.Origins, origin) {
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
	header.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID")
	header.Set("Access-Control-Max-Age", "600")
	return true
}

// checkOrigin refuses requests with another host name, or from another origin.
func (s *Server) checkOrigin(request *http.Request) error {
	if err := s.checkHost(request); err != nil {
		return err
	}
	if err := s.protection.Check(request); err != nil {
		return apierror.New(http.StatusForbidden, "Forbidden",
			fmt.Sprintf("Origin %q is not allowed to send requests to this server", request.Header.Get("Origin")), "Ask the administrator to allow the origin")
	}
	return nil
}

func (s *Server) checkHost(request *http.Request) error {
	host := request.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if len(s.Hosts) == 0 || slices.Contains(s.Hosts, strings.ToLower(strings.Trim(host, "[]"))) {
		return nil
	}
	return apierror.New(http.StatusMisdirectedRequest, "MisdirectedRequest", fmt.Sprintf("%q is not a host name of this server", request.Host),
		"Use one of its host names: "+strings.Join(s.Hosts, ", "))
}
