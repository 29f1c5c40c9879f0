// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

func TestOrigins(t *testing.T) {
	for name, test := range map[string]struct {
		origin  string
		allowed []string
		want    bool
	}{
		"none: no browser":          {"", nil, true},
		"the same host":             {"https://server:8443", nil, true},
		"in capitals":               {"https://SERVER:8443", nil, true},
		"another port":              {"https://server", nil, false},
		"another host":              {"https://evil.example", nil, false},
		"a host that begins alike":  {"https://server:8443.evil.example", nil, false},
		"a page without an origin":  {"null", nil, false},
		"no URL":                    {"://", nil, false},
		"allowed":                   {"https://dashboard.example", []string{"https://dashboard.example/"}, true},
		"allowed with other scheme": {"http://dashboard.example", []string{"https://dashboard.example"}, false},
		"not among the allowed":     {"https://evil.example", []string{"https://dashboard.example"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if allowed := originAllowed(test.origin, "server:8443", test.allowed); allowed != test.want {
				t.Errorf("allowed: %t", allowed)
			}
		})
	}
}

func TestProtocols(t *testing.T) {
	for name, test := range map[string]struct {
		offered []string
		chosen  string
	}{
		"none":                {nil, ""},
		"ours":                {[]string{Protocol}, Protocol},
		"ours after a token":  {[]string{bearerProtocol + "dG9rZW4", Protocol}, Protocol},
		"ours before a token": {[]string{Protocol, bearerProtocol + "dG9rZW4"}, Protocol},
		"another one":         {[]string{"chat"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			connection := dial(t, serve(t, Options{}, finiteMessages(nil)), &websocket.DialOptions{Subprotocols: test.offered})
			if connection.Subprotocol() != test.chosen {
				t.Errorf("the server chose %q", connection.Subprotocol())
			}
		})
	}
}

// TestRefusals: a refused stream is an API error.
func TestRefusals(t *testing.T) {
	key := "AAAAAAAAAAAAAAAAAAAAAA=="
	for name, test := range map[string]struct {
		header map[string]string
		code   int
	}{
		"no stream is asked for": {nil, http.StatusNotAcceptable},
		"a foreign page":         {map[string]string{"Accept": "text/event-stream", "Origin": "https://evil.example"}, http.StatusForbidden},
		"a foreign page's WebSocket": {map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key": key, "Origin": "https://evil.example"}, http.StatusForbidden},
		"no key":               {map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}, http.StatusBadRequest},
		"a key that is none":   {map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x"}, http.StatusBadRequest},
		"an old version":       {map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "8", "Sec-WebSocket-Key": key}, http.StatusBadRequest},
		"no upgrade":           {map[string]string{"Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}, http.StatusUpgradeRequired},
		"a token and no other": {map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key, "Sec-WebSocket-Protocol": bearerProtocol + "dG9rZW4"}, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, Options{}, finiteMessages(nil))
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range test.header {
				request.Header.Set(key, value)
			}
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var refused apierror.Error
			if err := json.NewDecoder(response.Body).Decode(&refused); err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != test.code || refused.Code != test.code || refused.Message == "" || len(refused.Suggestions) == 0 {
				t.Errorf("status %d, %+v", response.StatusCode, refused)
			}
		})
	}
}
