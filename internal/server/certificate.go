package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// TLS is how the server shows who it is.
type TLS struct {
	// CertificateFile and KeyFile are read again when they change. As long as they are
	// not there, or not named, the server makes itself a certificate that nobody can
	// check.
	CertificateFile, KeyFile string
	// Names are what a certificate of its own is for.
	Names []string
	// ClientAuthorities are those whose certificates clients may show; nil asks for
	// none.
	ClientAuthorities *x509.CertPool
}

const (
	// lookEvery is how often the server looks whether its files have come.
	lookEvery = 10 * time.Second
	// renewAfter is when the server makes itself a new certificate: they last a year.
	renewAfter = 300 * 24 * time.Hour
)

// certificates has the certificate to show.
type certificates struct {
	TLS
	log     *slog.Logger
	watcher atomic.Pointer[certwatcher.CertWatcher]
	own     atomic.Pointer[tls.Certificate]
	made    time.Time
}

func newCertificates(settings TLS, log *slog.Logger) (*certificates, error) {
	certificates := &certificates{TLS: settings, log: log}
	found, err := certificates.load()
	if err != nil || found {
		return certificates, err
	}
	log.Warn("no certificate is there; the server has made itself one, which clients cannot check",
		"certificate", settings.CertificateFile, "key", settings.KeyFile)
	return certificates, certificates.makeOwn()
}

// load reads the files for the first time. It says whether they are there.
func (certificates *certificates) load() (bool, error) {
	if certificates.CertificateFile == "" && certificates.KeyFile == "" {
		return false, nil
	}
	for _, file := range []string{certificates.CertificateFile, certificates.KeyFile} {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
	}
	watcher, err := certwatcher.New(certificates.CertificateFile, certificates.KeyFile)
	if err != nil {
		return false, fmt.Errorf("read the certificate %s and its key %s: %w", certificates.CertificateFile, certificates.KeyFile, err)
	}
	certificates.watcher.Store(watcher)
	return true, nil
}

func (certificates *certificates) makeOwn() error {
	names := append([]string{"localhost"}, certificates.Names...)
	certificate, key, err := cert.GenerateSelfSignedCertKey(names[len(names)-1], nil, names)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	certificates.own.Store(&pair)
	certificates.made = time.Now()
	return nil
}

// run keeps the certificate fresh until the server ends.
func (certificates *certificates) run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for certificates.watcher.Load() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		found, err := certificates.load()
		switch {
		case err != nil:
			certificates.log.Warn("the certificate cannot be used yet", "error", err.Error())
		case found:
			certificates.log.Info("a certificate has come, and is shown from now on", "certificate", certificates.CertificateFile)
		case time.Since(certificates.made) > renewAfter:
			if err := certificates.makeOwn(); err != nil {
				return err
			}
		}
	}
	return certificates.watcher.Load().Start(ctx)
}

// get is the certificate to show to a client.
func (certificates *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if watcher := certificates.watcher.Load(); watcher != nil {
		return watcher.GetCertificate(hello)
	}
	return certificates.own.Load(), nil
}

// suites are those of TLS 1.2 that FIPS 140 and HTTP/2 both allow. TLS 1.3 chooses its
// own.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
}

func (certificates *certificates) config() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: suites, GetCertificate: certificates.get, NextProtos: []string{"h2", "http/1.1"}}
	if certificates.ClientAuthorities != nil {
		// One that cannot be verified is no reason to refuse a client: its headers count
		// for nothing then, and its token may still be good.
		config.ClientAuth, config.ClientCAs = tls.RequestClientCert, certificates.ClientAuthorities
	}
	return config
}
