// SPDX-License-Identifier: Apache-2.0

// Package issuer issues serving certificates from a CA, and computes when to renew them.
// It stores nothing and reads no clock.
package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	// lifetime is how long a certificate is valid. It is renewed renewBefore its end, so
	// the operator may be down for a month.
	lifetime    = 90 * 24 * time.Hour
	renewBefore = 30 * 24 * time.Hour
	// clockSkew is how far the clock of a client may be behind.
	clockSkew = time.Hour
	// serialBits makes collisions of random serials unlikely, and fits into the 20 bytes
	// of RFC 5280.
	serialBits = 128
)

// Authority is a CA with its key.
type Authority struct {
	// PEM is the CA's certificate, for clients.
	PEM []byte

	certificate *x509.Certificate
	key         crypto.Signer
}

// Parse reads a CA from its certificate and key in PEM.
func Parse(certificate, key []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	signer, is := pair.PrivateKey.(crypto.Signer)
	if !is || !pair.Leaf.IsCA {
		return nil, errors.New("read the CA: the certificate is not a CA certificate")
	}
	return &Authority{PEM: certificate, certificate: pair.Leaf, key: signer}, nil
}

// Issue issues a certificate for names, which are DNS names or IP addresses, and
// returns it in PEM with its key.
func (a *Authority) Issue(names []string, now time.Time) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, nil, fmt.Errorf("generate a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "trireme-server"}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	for _, name := range names {
		if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}

// RenewalTime is when a certificate must be renewed. It is the zero time if this CA did
// not issue the certificate for exactly these names, or if the key does not match.
func (a *Authority) RenewalTime(certificate, key []byte, names []string) time.Time {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil || pair.Leaf.CheckSignatureFrom(a.certificate) != nil || !hasExactly(pair.Leaf, names) {
		return time.Time{}
	}
	return pair.Leaf.NotAfter.Add(-renewBefore)
}

func hasExactly(certificate *x509.Certificate, names []string) bool {
	found := slices.Clone(certificate.DNSNames)
	for _, address := range certificate.IPAddresses {
		found = append(found, address.String())
	}
	want := slices.Clone(names)
	for i, name := range want {
		// One address can be written in more than one way.
		if address := net.ParseIP(name); address != nil {
			want[i] = address.String()
		}
	}
	slices.Sort(found)
	slices.Sort(want)
	return slices.Equal(found, want)
}
