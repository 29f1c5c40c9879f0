// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net/http"
	"testing"
)

func TestHosts(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.Hosts = []string{"localhost", "127.0.0.1", "::1"} })
	for host, code := range map[string]int{"localhost:8090": 200, "LOCALHOST": 200, "[::1]:8090": 200, "127.0.0.1": 200, "evil.example": 421, "localhost.evil.example:8090": 421} {
		t.Run(host, func(t *testing.T) {
			if got := running.do(t, http.MethodGet, "/api/v1/namespaces/n/mpijobs/hello", "jane", nil, "Host", host); got.code != code {
				t.Errorf("%d, want %d", got.code, code)
			}
		})
	}
}

// A page of an allowed origin can read responses, and learns this before it sends a token.
func TestAllowedOrigins(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.Origins = []string{"https://dashboard.example"} })
	for name, test := range map[string]struct {
		method, origin, user string
		code                 int
		allowed              string
	}{
		"asks first":                {method: http.MethodOptions, origin: "https://dashboard.example", code: 204, allowed: "https://dashboard.example"},
		"reads":                     {method: http.MethodGet, origin: "https://dashboard.example", user: "jane", code: 200, allowed: "https://dashboard.example"},
		"sees why it was refused":   {method: http.MethodGet, origin: "https://dashboard.example", code: 401, allowed: "https://dashboard.example"},
		"somebody else's asks":      {method: http.MethodOptions, origin: "https://evil.example", code: 401},
		"somebody else's reads":     {method: http.MethodGet, origin: "https://evil.example", user: "jane", code: 200},
		"another port is another's": {method: http.MethodGet, origin: "https://dashboard.example:8443", user: "jane", code: 200},
	} {
		t.Run(name, func(t *testing.T) {
			got := running.do(t, test.method, "/api/v1/namespaces/n/mpijobs/hello", test.user, nil, "Origin", test.origin)
			if got.code != test.code || got.header.Get("Access-Control-Allow-Origin") != test.allowed {
				t.Errorf("%d for %q", got.code, got.header.Get("Access-Control-Allow-Origin"))
			}
			if got.header.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("a browser's own credentials are allowed")
			}
		})
	}
}
