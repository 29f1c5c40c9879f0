// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// TLS has the settings of the server's certificate.
type TLS struct {
	// CertificateFile and KeyFile are reloaded when they change. Without them the server
	// creates a self-signed certificate, which clients cannot verify, for tests and
	// development.
	CertificateFile, KeyFile string
	// Names are the DNS names in the self-signed certificate.
	Names []string
	// ClientAuthorities are the CAs of client certificates; nil requests no client
	// certificates.
	ClientAuthorities *x509.CertPool
}

const (
	// renewalCheckInterval is how often the server checks the age of its self-signed
	// certificate, renewAfter the age at which it is renewed. The certificates are valid
	// for a year.
	renewalCheckInterval = time.Hour
	renewAfter           = 300 * 24 * time.Hour
)

// certificates holds the server's certificate.
type certificates struct {
	TLS
	// watcher is nil if no files are set.
	watcher    *certwatcher.CertWatcher
	selfSigned atomic.Pointer[tls.Certificate]
}

func newCertificates(settings TLS, log *slog.Logger) (*certificates, error) {
	certificates := &certificates{TLS: settings}
	if settings.CertificateFile == "" {
		log.Warn("no certificate file is set; the server uses a self-signed certificate, which clients cannot verify")
		return certificates, certificates.createOwn()
	}
	watcher, err := certwatcher.New(settings.CertificateFile, settings.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s and its key %s: %w", settings.CertificateFile, settings.KeyFile, err)
	}
	certificates.watcher = watcher
	return certificates, nil
}

func (c *certificates) createOwn() error {
	names := append([]string{"localhost"}, c.Names...)
	certificate, key, err := cert.GenerateSelfSignedCertKey(names[len(names)-1], nil, names)
	if err != nil {
		return fmt.Errorf("create a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("create a certificate: %w", err)
	}
	c.selfSigned.Store(&pair)
	return nil
}

// run renews or reloads the certificate until the context ends.
func (c *certificates) run(ctx context.Context) error {
	if c.watcher != nil {
		return c.watcher.Start(ctx)
	}
	tick := time.NewTicker(renewalCheckInterval)
	defer tick.Stop()
	for created := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if time.Since(created) < renewAfter {
			continue
		}
		if err := c.createOwn(); err != nil {
			return err
		}
		created = time.Now()
	}
}

// get returns the current certificate.
func (c *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.watcher != nil {
		return c.watcher.GetCertificate(hello)
	}
	return c.selfSigned.Load(), nil
}

// cipherSuites are the TLS 1.2 suites that both FIPS 140 and HTTP/2 allow. TLS 1.3 has its
// own.
var cipherSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
}

func (c *certificates) config() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: cipherSuites, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}}
	if c.ClientAuthorities != nil {
		// A client certificate that cannot be verified does not refuse the client: its
		// headers are not trusted then, but its token may be valid.
		config.ClientAuth, config.ClientCAs = tls.RequestClientCert, c.ClientAuthorities
	}
	return config
}
