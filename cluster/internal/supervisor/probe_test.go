// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/pki"
)

// issue makes a leaf of the authority and gives it as a server uses it.
func issue(t *testing.T, directory, authority, name string) tls.Certificate {
	t.Helper()
	signer, err := pki.Open(directory, authority, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := signer.Issue(pki.Leaf{File: name, CommonName: name, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(directory, name+".crt"), filepath.Join(directory, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// secured is a component that answers only those who show a certificate of the
// authority.
func secured(t *testing.T, directory, clients string, certificate tls.Certificate, handler http.Handler) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(directory, clients+".crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(content)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func TestProbes(t *testing.T) {
	l := newLayout(t)
	directory, elsewhere := l.PKI(), t.TempDir()
	issue(t, directory, component.ClusterAuthority, "admin")
	issue(t, directory, component.EtcdAuthority, "etcd-client")
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "[-]etcd failed: "+strings.Repeat("x", 1000), http.StatusInternalServerError)
	})
	moved := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	plain, failing, odd := httptest.NewServer(ok), httptest.NewServer(broken), httptest.NewServer(moved)
	for _, server := range []*httptest.Server{plain, failing, odd} {
		t.Cleanup(server.Close)
	}
	closed := httptest.NewServer(ok)
	closed.Close()
	cluster := secured(t, directory, component.ClusterAuthority, issue(t, directory, component.ClusterAuthority, "kube-apiserver"), ok)
	etcd := secured(t, directory, component.EtcdAuthority, issue(t, directory, component.EtcdAuthority, "etcd"), ok)
	stranger := secured(t, directory, component.ClusterAuthority, issue(t, elsewhere, component.ClusterAuthority, "kube-apiserver"), ok)
	socket := filepath.Join(l.Run, "socket")
	listen(t, socket)

	prober, err := newProber(l)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		probe     component.Probe
		wantError string
	}{
		"no probe: running is enough":                     {},
		"a socket that accepts":                           {probe: component.Probe{URL: "unix://" + socket}},
		"a socket that is not there":                      {probe: component.Probe{URL: "unix://" + socket + "2"}, wantError: "no such file"},
		"an answer":                                       {probe: component.Probe{URL: plain.URL}},
		"nobody listens":                                  {probe: component.Probe{URL: closed.URL}, wantError: "connection refused"},
		"an answer that says what is wrong":               {probe: component.Probe{URL: failing.URL}, wantError: "500 Internal Server Error: [-]etcd failed"},
		"an answer that is not 200":                       {probe: component.Probe{URL: odd.URL}, wantError: "204"},
		"a URL that is none":                              {probe: component.Probe{URL: "http://a b/"}, wantError: "invalid"},
		"a certificate for the API server":                {probe: component.Probe{URL: cluster, Leaf: "admin"}},
		"a certificate for etcd":                          {probe: component.Probe{URL: etcd, Leaf: "etcd-client"}},
		"the API server's certificate does not open etcd": {probe: component.Probe{URL: etcd, Leaf: "admin"}, wantError: "tls"},
		"no certificate where one is asked for":           {probe: component.Probe{URL: cluster}, wantError: "tls"},
		"a certificate that was never issued":             {probe: component.Probe{URL: cluster, Leaf: "nobody"}, wantError: "nobody.crt"},
		"a server that another authority vouches for":     {probe: component.Probe{URL: stranger, Leaf: "admin"}, wantError: "certificate"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			err := prober.probe(context.Background(), test.probe)
			if test.wantError == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.wantError) {
				t.Errorf("error %v, want one with %q", err, test.wantError)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("an error of %d characters fills the status", len(err.Error()))
			}
		})
	}
}

// The standard library does not use a proxy for the loopback, so that only the
// client itself tells.
func TestProbesUseNoProxy(t *testing.T) {
	prober, err := newProber(newLayout(t))
	if err != nil {
		t.Fatal(err)
	}
	client, err := prober.client("")
	if err != nil {
		t.Fatal(err)
	}
	if transport, ok := client.Transport.(*http.Transport); !ok || transport.Proxy != nil || !transport.DisableKeepAlives {
		t.Errorf("transport %+v uses a proxy or keeps connections", client.Transport)
	}
}

func TestProbeDoesNotWaitForEver(t *testing.T) {
	l := newLayout(t)
	prober, err := newProber(l)
	if err != nil {
		t.Fatal(err)
	}
	// Accepts and says nothing.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- prober.probe(ctx, component.Probe{URL: "http://" + listener.Addr().String()}) }()
	connection, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	cancel()
	select {
	case err := <-result:
		if err == nil {
			t.Error("a component that says nothing is ready")
		}
	case <-time.After(10 * time.Second):
		t.Error("the probe outlives its context")
	}
}
