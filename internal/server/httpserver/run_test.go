// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/cert"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// pair is a certificate for a name, with its key, in files.
type pair struct{ certificate, key string }

func (p pair) write(t *testing.T, name string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(name, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{p.key: key, p.certificate: certificate} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func newPair(t *testing.T) pair {
	folder := t.TempDir()
	return pair{certificate: filepath.Join(folder, "tls.crt"), key: filepath.Join(folder, "tls.key")}
}

// shown returns the certificate that a server presents to a new client, and the negotiated
// protocol.
func (r *running) shown(t *testing.T, protocols ...string) (*x509.Certificate, string) {
	t.Helper()
	connection, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0], connection.ConnectionState().NegotiatedProtocol
}

func TestCertificateIsReloaded(t *testing.T) {
	pair := newPair(t)
	pair.write(t, "before.example")
	running := start(t, api(), func(options *Options) {
		options.TLS = &TLS{CertificateFile: pair.certificate, KeyFile: pair.key}
	})
	for wanted, protocol := range map[string]string{"h2": "h2", "http/1.1": "http/1.1"} {
		certificate, agreed := running.shown(t, wanted)
		if agreed != protocol || certificate.VerifyHostname("before.example") != nil {
			t.Errorf("speaks %q as %v", agreed, certificate.DNSNames)
		}
	}
	pair.write(t, "after.example")
	eventually.Holds(t, "the new certificate is shown", func() bool {
		certificate, _ := running.shown(t)
		return certificate.VerifyHostname("after.example") == nil
	})
}

func TestSelfSignedCertificate(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.TLS = &TLS{Names: []string{"trireme-server.trireme-system.svc"}} })
	certificate, _ := running.shown(t)
	for _, name := range []string{"trireme-server.trireme-system.svc", "localhost"} {
		if err := certificate.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(running.log.String(), "which clients cannot verify") {
		t.Errorf("the log does not say so: %s", running.log)
	}
}

// A missing certificate must not be replaced by a self-signed one.
func TestMissingCertificate(t *testing.T) {
	pair := newPair(t)
	if _, err := New(Options{TLS: &TLS{CertificateFile: pair.certificate, KeyFile: pair.key}, Registry: prometheus.NewRegistry()}); err == nil || !strings.Contains(err.Error(), pair.certificate) {
		t.Errorf("started without its certificate: %v", err)
	}
}

func TestUnreadableCertificate(t *testing.T) {
	pair := newPair(t)
	for _, file := range []string{pair.certificate, pair.key} {
		if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(Options{TLS: &TLS{CertificateFile: pair.certificate, KeyFile: pair.key}, Registry: prometheus.NewRegistry()}); err == nil || !strings.Contains(err.Error(), pair.certificate) {
		t.Errorf("started with nonsense: %v", err)
	}
}

// First the server is not ready, then streams end, then the server; requests in progress
// are completed.
func TestGracefulShutdown(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/", api())
	mux.HandleFunc("GET /slow", func(writer http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = writer.Write([]byte("answered"))
	})
	running := start(t, mux, func(options *Options) { options.Grace = 3 * time.Second })
	_, watching := running.open(t, "jane")
	wantLine(t, watching, "watching")
	slow := make(chan answer, 1)
	go func() { slow <- running.do(t, http.MethodGet, "/slow", "jane", nil) }()
	<-begun

	running.stop()
	eventually.Holds(t, "readiness ends", func() bool { return running.do(t, http.MethodGet, "/readyz", "", nil).code == 503 })
	if got := running.do(t, http.MethodGet, "/api/v1/namespaces/n/mpijobs/hello", "jane", nil); got.code != 200 {
		t.Errorf("within the grace a call gets %d", got.code)
	}
	wantLine(t, watching, "ServerStopping")
	close(finish)
	if got := <-slow; got.body != "answered" {
		t.Errorf("a call that had begun got %q", got.body)
	}
	running.await(t)
	if connection, err := net.Dial("tcp", running.address); err == nil {
		connection.Close()
		t.Error("the port still answers")
	}
}

func TestReadiness(t *testing.T) {
	var synced error = errors.New("the cache knows no jobs yet")
	running := start(t, api(), func(options *Options) {
		options.Ready = map[string]func(context.Context) error{
			"cache": func(context.Context) error { return synced }, "cluster": func(context.Context) error { return nil },
		}
	})
	if got := running.do(t, http.MethodGet, "/readyz", "", nil); got.code != 503 || got.apiErr.Message != "not ready: cache" || !strings.Contains(running.log.String(), "the cache knows no jobs yet") {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := running.do(t, http.MethodGet, "/healthz", "", nil); got.code != 200 {
		t.Errorf("a server that is not ready yet lives: %d", got.code)
	}
}

func TestProbesAndMetrics(t *testing.T) {
	// The port is free now, and no other test uses it.
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	running := start(t, api(), func(options *Options) { options.ProbeAddress = address })
	running.do(t, http.MethodGet, "/api/v1/namespaces/n/mpijobs/hello", "jane", nil)
	running.do(t, http.MethodGet, "/api/v1/namespaces/n/mpijobs/hello", "", nil)
	running.do(t, "INVENTED", "/invented/by/a/client", "jane", nil)
	probes := *running
	probes.address = address
	if got := probes.do(t, http.MethodGet, "/readyz", "", nil); got.code != 200 {
		t.Errorf("readiness: %d", got.code)
	}
	told := probes.do(t, http.MethodGet, "/metrics", "", nil).body
	for _, want := range []string{
		`trireme_server_requests_total{code="200",method="GET",route="GET /api/v1/namespaces/{namespace}/mpijobs/{name}"} 1`,
		`trireme_server_requests_total{code="401",method="GET",route="none"} 1`,
		`trireme_server_requests_total{code="404",method="other",route="none"} 1`,
		`trireme_server_request_duration_seconds_count{method="GET",route="GET /api/v1/namespaces/{namespace}/mpijobs/{name}"} 1`,
		"trireme_server_requests_in_flight 0", "trireme_server_streams 0", "go_goroutines",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(told, "hello") || strings.Contains(told, "invented") || strings.Contains(told, "jane") {
		t.Error("the metrics name what is a caller's")
	}
}

func TestAddressInUse(t *testing.T) {
	running := start(t, api(), nil)
	options := running.Options
	options.Address, options.Registry = running.address, prometheus.NewRegistry()
	second, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "serve at "+running.address) {
		t.Errorf("two servers at one address: %v", err)
	}
}
