// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// connect opens a connection from a local address, which is closed with the test.
func (r *running) connect(t *testing.T, from string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
	connection, err := dialer.DialContext(t.Context(), "tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// isServed tells whether the server responds on a connection.
func isServed(t *testing.T, connection net.Conn) bool {
	t.Helper()
	if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(connection, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		if isTimeout(err) {
			t.Fatal("the server neither answers nor closes the connection")
		}
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// metric returns a metric of the server, as in "trireme_server_connections 2".
func (r *running) metric(t *testing.T, name string) string {
	t.Helper()
	answer := httptest.NewRecorder()
	r.metrics.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("there is no metric %s", name)
	return ""
}

func (r *running) refusals(t *testing.T, cause string) string {
	t.Helper()
	return r.metric(t, fmt.Sprintf("trireme_server_refusals_total{cause=%q}", cause))
}

func TestConnectionsOfOneSource(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.Limits.ConnectionsPerSource = 3 })
	var held []net.Conn
	for range 3 {
		connection := running.connect(t, "127.0.0.1")
		if !isServed(t, connection) {
			t.Fatal("a connection within the limit is refused")
		}
		held = append(held, connection)
	}
	if isServed(t, running.connect(t, "127.0.0.1")) {
		t.Error("one more of the same source is served")
	}
	if !isServed(t, running.connect(t, "127.0.0.2")) {
		t.Error("another source is refused")
	}
	if got := running.refusals(t, causeConnectionsPerSource); got != "1" {
		t.Errorf("%s refusals are counted", got)
	}
	held[0].Close()
	eventually.Holds(t, "there is room again", func() bool { return isServed(t, running.connect(t, "127.0.0.1")) })
}

func TestConnectionsOfAll(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.Limits.Connections, options.Limits.ConnectionsPerSource = 2, 2 })
	held := running.connect(t, "127.0.0.1")
	if !isServed(t, held) || !isServed(t, running.connect(t, "127.0.0.2")) {
		t.Fatal("connections within the limit are refused")
	}
	if isServed(t, running.connect(t, "127.0.0.3")) {
		t.Error("one more than all is served")
	}
	if got := running.refusals(t, causeConnections); got != "1" {
		t.Errorf("%s refusals are counted", got)
	}
	if got := running.metric(t, "trireme_server_connections"); got != "2" {
		t.Errorf("%s connections are counted", got)
	}
	held.Close()
	eventually.Holds(t, "there is room again", func() bool { return isServed(t, running.connect(t, "127.0.0.3")) })
}

// A connection counts before it has sent anything, and until a WebSocket on it ends.
func TestIdleConnectionsCount(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.TLS, options.Limits.ConnectionsPerSource = &TLS{}, 2 })
	for range 2 {
		running.connect(t, "127.0.0.1")
	}
	eventually.Holds(t, "both are counted", func() bool { return running.metric(t, "trireme_server_connections") == "2" })
	config := &tls.Config{InsecureSkipVerify: true}
	if err := tls.Client(running.connect(t, "127.0.0.1"), config).HandshakeContext(t.Context()); err == nil {
		t.Error("one more is served")
	}
	if err := tls.Client(running.connect(t, "127.0.0.2"), config).HandshakeContext(t.Context()); err != nil {
		t.Errorf("another source: %v", err)
	}
}
