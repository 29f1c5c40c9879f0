// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// prober checks whether components are ready, with a client certificate they trust.
type prober struct {
	directory string
	roots     *x509.CertPool
}

func newProber(l layout.Layout) (*prober, error) {
	p := &prober{directory: l.PKI(), roots: x509.NewCertPool()}
	for _, authority := range []string{component.ClusterAuthority, component.EtcdAuthority} {
		content, err := os.ReadFile(filepath.Join(p.directory, authority+".crt"))
		if err != nil {
			return nil, fmt.Errorf("probe certificates: %w", err)
		}
		p.roots.AppendCertsFromPEM(content)
	}
	return p, nil
}

func (p *prober) probe(ctx context.Context, probe component.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if probe.URL == "" {
		return nil // no probe: running is enough
	}
	if socket, isSocket := strings.CutPrefix(probe.URL, "unix://"); isSocket {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return connection.Close()
	}
	client, err := p.client(probe.Leaf)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, probe.URL, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 8<<10))
		return fmt.Errorf("%s answers %s: %s", probe.URL, response.Status, complaints(string(body)))
	}
	return nil
}

// client creates a client for each probe: a kept connection would hide that the
// component no longer accepts new ones.
func (p *prober) client(leaf string) (*http.Client, error) {
	config := &tls.Config{RootCAs: p.roots, MinVersion: tls.VersionTLS12}
	if leaf != "" {
		base := filepath.Join(p.directory, leaf)
		pair, err := tls.LoadX509KeyPair(base+".crt", base+".key")
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, Proxy: nil}}, nil
}

// complaints are the failed checks if the component lists its checks, otherwise the
// beginning of the response; always one line.
func complaints(body string) string {
	var failed []string
	for _, line := range strings.Split(body, "\n") {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, line)
		}
	}
	if len(failed) == 0 {
		failed = strings.Fields(body)
	}
	line := strings.Join(failed, " ")
	return strings.ToValidUTF8(line[:min(len(line), 300)], "")
}
