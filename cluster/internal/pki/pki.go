// SPDX-License-Identifier: Apache-2.0

// Package pki creates the certificates and kubeconfigs of the cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	leafLifetime      = 365 * 24 * time.Hour
	// renewBefore makes `up` replace a certificate that would expire while the
	// cluster is likely to be in use.
	renewBefore = 30 * 24 * time.Hour
)

// Authority signs leaf certificates into a directory.
type Authority struct {
	directory   string
	name        string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	now         time.Time
}

// Leaf describes one certificate: its subject, and the names and addresses for which
// it is valid.
type Leaf struct {
	File         string
	CommonName   string
	Organization string
	DNSNames     []string
	IPs          []net.IP
}

// Open reads the named authority from the directory, or creates it.
func Open(directory, name string, now time.Time) (*Authority, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	a := &Authority{directory: directory, name: name, now: now}
	certificate, key, err := readPair(a.CertificateFile(), a.keyFile(name))
	switch {
	case err == nil && now.Before(certificate.NotAfter.Add(-leafLifetime)):
		a.certificate, a.key = certificate, key
		return a, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("certificate authority %s: %w; `reset` creates a new one", name, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(authorityLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	a.certificate, a.key, err = a.sign(template, name)
	return a, err
}

// CertificateFile is the CA certificate.
func (a *Authority) CertificateFile() string { return filepath.Join(a.directory, a.name+".crt") }

func (a *Authority) keyFile(name string) string { return filepath.Join(a.directory, name+".key") }

// Issue creates the certificate if it does not exist, has another CA or other names, or
// expires soon.
func (a *Authority) Issue(leaf Leaf) error {
	file := filepath.Join(a.directory, leaf.File+".crt")
	if existing, _, err := readPair(file, a.keyFile(leaf.File)); err == nil && a.stillGood(existing, leaf) {
		return nil
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: leaf.CommonName},
		NotBefore:   a.now.Add(-time.Hour),
		NotAfter:    a.now.Add(leafLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    leaf.DNSNames,
		IPAddresses: leaf.IPs,
	}
	if leaf.Organization != "" {
		template.Subject.Organization = []string{leaf.Organization}
	}
	_, _, err := a.sign(template, leaf.File)
	return err
}

func (a *Authority) stillGood(c *x509.Certificate, leaf Leaf) bool {
	if a.now.After(c.NotAfter.Add(-renewBefore)) || c.CheckSignatureFrom(a.certificate) != nil {
		return false
	}
	// Exactly these values: removed names and groups must not stay valid.
	return c.Subject.CommonName == leaf.CommonName &&
		strings.Join(c.Subject.Organization, ",") == leaf.Organization &&
		slices.Equal(c.DNSNames, leaf.DNSNames) &&
		slices.EqualFunc(c.IPAddresses, leaf.IPs, net.IP.Equal)
}

// sign completes the certificate, signs it and writes it with its key. A new authority
// is self-signed.
func (a *Authority) sign(template *x509.Certificate, name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s: %w", name, err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s: %w", name, err)
	}
	issuer, issuerKey := a.certificate, a.key
	if issuer == nil {
		issuer, issuerKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s: %w", name, err)
	}
	if err := writePair(filepath.Join(a.directory, name), der, key); err != nil {
		return nil, nil, fmt.Errorf("certificate %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}

func writePair(base string, der []byte, key *ecdsa.PrivateKey) error {
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	if err := os.WriteFile(base+".key", keyPEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(base+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

func readPair(certificateFile, keyFile string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certificateDER, err := readPEM(certificateFile)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := readPEM(keyFile)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(certificateDER)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", certificateFile, err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", keyFile, err)
	}
	ecdsaKey, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("%s: not an ECDSA key", keyFile)
	}
	// The two files are written one after the other, and a crash can happen between
	// them.
	if !ecdsaKey.PublicKey.Equal(certificate.PublicKey) {
		return nil, nil, fmt.Errorf("%s: not the key of %s", keyFile, certificateFile)
	}
	return certificate, ecdsaKey, nil
}

func readPEM(file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s: not PEM", file)
	}
	return block.Bytes, nil
}

// ServiceAccountKey creates the key that signs ServiceAccount tokens, if it does not
// exist: a new one would invalidate every token in use.
func ServiceAccountKey(directory string) error {
	base := filepath.Join(directory, "service-account")
	if _, err := os.Stat(base + ".key"); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	if err := os.WriteFile(base+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644); err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	return os.WriteFile(base+".key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600)
}

// WriteKubeconfig writes a kubeconfig that only its owner can read. It embeds the
// certificate and key, so that the file can be copied.
func WriteKubeconfig(file, server, context, directory, authority, leaf string) error {
	contents := map[string][]byte{}
	for _, name := range []string{authority + ".crt", leaf + ".crt", leaf + ".key"} {
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			return fmt.Errorf("kubeconfig %s: %w", file, err)
		}
		contents[name] = content
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[context] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: contents[authority+".crt"]}
	config.AuthInfos[leaf] = &clientcmdapi.AuthInfo{ClientCertificateData: contents[leaf+".crt"], ClientKeyData: contents[leaf+".key"]}
	config.Contexts[context] = &clientcmdapi.Context{Cluster: context, AuthInfo: leaf}
	config.CurrentContext = context
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	return os.Chmod(file, 0o600)
}
