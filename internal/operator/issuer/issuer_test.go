// SPDX-License-Identifier: Apache-2.0

package issuer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)

// newCA is a CA, or a self-signed certificate that is not a CA.
func newCA(t *testing.T, isCA bool) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(0), Subject: pkix.Name{CommonName: "trireme-webhook"}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	authority, err := Parse(newCA(t, true))
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func parse(t *testing.T, certificate []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(certificate)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestIssuedCertificateVerifies(t *testing.T) {
	authority := newAuthority(t)
	certificate, _, err := authority.Issue([]string{"trireme-server.trireme-system.svc", "192.0.2.7"}, now)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	leaf := parse(t, certificate)
	for name, want := range map[string]bool{"trireme-server.trireme-system.svc": true, "192.0.2.7": true, "trireme-webhook.trireme-system.svc": false} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now.Add(lifetime - time.Minute)}); (err == nil) != want {
			t.Errorf("as %s: %v", name, err)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("the server's certificate lets it in as a client")
	}
	if leaf.IsCA || leaf.SerialNumber.BitLen() < 64 {
		t.Errorf("CA %v, serial number %s", leaf.IsCA, leaf.SerialNumber)
	}
}

// Clients in other languages are stricter than Go: Python 3.13 makes OpenSSL check all of
// RFC 5280.
func TestIssuedCertificateSatisfiesOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	authority := newAuthority(t)
	certificate, _, err := authority.Issue([]string{"trireme-server.trireme-system.svc"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, content := range map[string][]byte{"ca.crt": authority.PEM, "tls.crt": certificate} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	verify := exec.CommandContext(ctx, "openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "trireme-server.trireme-system.svc", "-CAfile", "ca.crt", "tls.crt")
	verify.Dir = folder
	if output, err := verify.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

func TestRenewalTime(t *testing.T) {
	authority, names := newAuthority(t), []string{"a.example", "2001:db8:0::7"}
	certificate, key, err := authority.Issue(names, now)
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := authority.Issue(names, now)
	if err != nil {
		t.Fatal(err)
	}
	due := now.Add(60 * 24 * time.Hour)
	for name, tc := range map[string]struct {
		authority        *Authority
		certificate, key []byte
		names            []string
		want             time.Time
	}{
		"as issued":            {authority, certificate, key, names, due},
		"names in other order": {authority, certificate, key, []string{"2001:db8::7", "a.example"}, due},
		"a name is added":      {authority, certificate, key, append([]string{"b.example"}, names...), time.Time{}},
		"a name is removed":    {authority, certificate, key, names[:1], time.Time{}},
		"another CA":           {newAuthority(t), certificate, key, names, time.Time{}},
		"another key":          {authority, certificate, otherKey, names, time.Time{}},
		"no certificate":       {authority, nil, nil, names, time.Time{}},
		"no PEM":               {authority, []byte("nonsense"), key, names, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.authority.RenewalTime(tc.certificate, tc.key, tc.names); !got.Equal(tc.want) {
				t.Errorf("due at %s, want %s", got, tc.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	certificate, key := newCA(t, true)
	_, otherKey := newCA(t, true)
	leaf, leafKey := newCA(t, false)
	for name, tc := range map[string]struct{ certificate, key []byte }{
		"nothing":                  {},
		"a certificate and no key": {certificate, nil},
		"the key of another":       {certificate, otherKey},
		"no CA":                    {leaf, leafKey},
		"no PEM":                   {[]byte("nonsense"), key},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(tc.certificate, tc.key); err == nil {
				t.Error("it was accepted")
			}
		})
	}
}
