// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
)

// start is when the certificates of these tests are made.
var start = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

func open(t *testing.T, directory, name string, now time.Time) *Authority {
	t.Helper()
	authority, err := Open(directory, name, now)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func issue(t *testing.T, authority *Authority, leaf Leaf) {
	t.Helper()
	if err := authority.Issue(leaf); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func write(t *testing.T, content []byte, path ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path...), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func parse(t *testing.T, content []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(content)
	if block == nil {
		t.Fatal("certificate is not PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func assertMode(t *testing.T, want os.FileMode, path ...string) {
	t.Helper()
	info, err := os.Stat(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != want {
		t.Errorf("%s has mode %o, want %o", info.Name(), info.Mode().Perm(), want)
	}
}

func TestAuthorityIsMadeOnce(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "pki")
	first := open(t, directory, "ca", start)
	if want := filepath.Join(directory, "ca.crt"); first.CertificateFile() != want {
		t.Errorf("certificate is in %s, want %s", first.CertificateFile(), want)
	}
	certificate, key := read(t, directory, "ca.crt"), read(t, directory, "ca.key")
	assertMode(t, 0o700, directory)
	assertMode(t, 0o600, directory, "ca.key")
	parsed := parse(t, certificate)
	if !parsed.IsCA || parsed.Subject.CommonName != "ca" {
		t.Errorf("IsCA = %v and name %q, want an authority of the name ca", parsed.IsCA, parsed.Subject.CommonName)
	}

	open(t, directory, "ca", start.Add(9*365*day-day))
	if !bytes.Equal(certificate, read(t, directory, "ca.crt")) || !bytes.Equal(key, read(t, directory, "ca.key")) {
		t.Error("an authority that is good for more than a leaf's life was replaced")
	}

	// Any later, and it would run out before a leaf that it signs.
	later := start.Add(9*365*day + day)
	open(t, directory, "ca", later)
	renewed := parse(t, read(t, directory, "ca.crt"))
	if renewed.NotAfter.Before(later.Add(leafLifetime)) {
		t.Errorf("authority ends on %s, before a leaf made on %s would", renewed.NotAfter, later)
	}
}

func TestAuthoritiesOfOneDirectoryDiffer(t *testing.T) {
	directory := t.TempDir()
	one, two := open(t, directory, "one", start), open(t, directory, "two", start)
	if one.key.Equal(two.key) {
		t.Error("two authorities have the same key")
	}
}

func TestBrokenAuthorityIsNotSilentlyReplaced(t *testing.T) {
	// Replacing it would lock out everybody who holds one of its certificates.
	tests := map[string]func(t *testing.T, directory string){
		"a certificate that is not PEM": func(t *testing.T, directory string) {
			write(t, []byte("garbage"), directory, "ca.crt")
		},
		"an empty certificate, as a full disk leaves it": func(t *testing.T, directory string) {
			write(t, nil, directory, "ca.crt")
		},
		"a certificate that does not parse": func(t *testing.T, directory string) {
			write(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("garbage")}), directory, "ca.crt")
		},
		"a key that is not PEM": func(t *testing.T, directory string) {
			write(t, []byte("garbage"), directory, "ca.key")
		},
		"a key that does not parse": func(t *testing.T, directory string) {
			write(t, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("garbage")}), directory, "ca.key")
		},
		"the key of another authority": func(t *testing.T, directory string) {
			open(t, directory, "other", start)
			write(t, read(t, directory, "other.key"), directory, "ca.key")
		},
	}
	for sentence, damage := range tests {
		t.Run(sentence, func(t *testing.T) {
			directory := t.TempDir()
			open(t, directory, "ca", start)
			damage(t, directory)
			certificate := read(t, directory, "ca.crt")
			_, err := Open(directory, "ca", start)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range []string{"certificate authority ca", "`reset`"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if !bytes.Equal(certificate, read(t, directory, "ca.crt")) {
				t.Error("the broken file was replaced nevertheless")
			}
		})
	}
}

func TestLeafIsMadeAnewOnlyWhenItMust(t *testing.T) {
	original := Leaf{
		File: "leaf", CommonName: "someone", Organization: "group",
		DNSNames: []string{"localhost", "example"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	tests := map[string]struct {
		leaf    func(*Leaf)
		damage  func(t *testing.T, directory string)
		later   time.Duration
		wantNew bool
	}{
		"the same again":            {},
		"before the last month":     {later: 334 * day},
		"in the last month":         {later: 336 * day, wantNew: true},
		"after its end":             {later: 400 * day, wantNew: true},
		"a name more":               {leaf: func(l *Leaf) { l.DNSNames = append(l.DNSNames, "more") }, wantNew: true},
		"a name less":               {leaf: func(l *Leaf) { l.DNSNames = l.DNSNames[:1] }, wantNew: true},
		"an address more":           {leaf: func(l *Leaf) { l.IPs = append(l.IPs, net.IPv4(10, 0, 0, 1)) }, wantNew: true},
		"another address":           {leaf: func(l *Leaf) { l.IPs = []net.IP{net.IPv4(10, 0, 0, 1)} }, wantNew: true},
		"no address any more":       {leaf: func(l *Leaf) { l.IPs = nil }, wantNew: true},
		"the address in four bytes": {leaf: func(l *Leaf) { l.IPs = []net.IP{{127, 0, 0, 1}} }},
		"another holder":            {leaf: func(l *Leaf) { l.CommonName = "another" }, wantNew: true},
		"another group":             {leaf: func(l *Leaf) { l.Organization = "system:masters" }, wantNew: true},
		"out of the group":          {leaf: func(l *Leaf) { l.Organization = "" }, wantNew: true},
		"the authority was replaced": {wantNew: true, damage: func(t *testing.T, directory string) {
			for _, file := range []string{"ca.crt", "ca.key"} {
				if err := os.Remove(filepath.Join(directory, file)); err != nil {
					t.Fatal(err)
				}
			}
		}},
		"the key was lost": {wantNew: true, damage: func(t *testing.T, directory string) {
			if err := os.Remove(filepath.Join(directory, "leaf.key")); err != nil {
				t.Fatal(err)
			}
		}},
		"the certificate was damaged": {wantNew: true, damage: func(t *testing.T, directory string) {
			write(t, []byte("garbage"), directory, "leaf.crt")
		}},
		"the key is another's": {wantNew: true, damage: func(t *testing.T, directory string) {
			write(t, read(t, directory, "ca.key"), directory, "leaf.key")
		}},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			directory := t.TempDir()
			issue(t, open(t, directory, "ca", start), original)
			assertMode(t, 0o600, directory, "leaf.key")
			if test.damage != nil {
				test.damage(t, directory)
			}
			certificate, _ := os.ReadFile(filepath.Join(directory, "leaf.crt"))
			key, _ := os.ReadFile(filepath.Join(directory, "leaf.key"))

			asked := original
			if test.leaf != nil {
				test.leaf(&asked)
			}
			now := start.Add(test.later)
			authority := open(t, directory, "ca", now)
			issue(t, authority, asked)

			same := bytes.Equal(certificate, read(t, directory, "leaf.crt")) && bytes.Equal(key, read(t, directory, "leaf.key"))
			if same == test.wantNew {
				t.Errorf("made anew = %v, want %v", !same, test.wantNew)
			}
			assertMode(t, 0o600, directory, "leaf.key")
			if _, err := tls.LoadX509KeyPair(filepath.Join(directory, "leaf.crt"), filepath.Join(directory, "leaf.key")); err != nil {
				t.Errorf("certificate and key do not belong together: %v", err)
			}
			assertLeaf(t, authority, parse(t, read(t, directory, "leaf.crt")), asked, now)
		})
	}
}

func assertLeaf(t *testing.T, authority *Authority, got *x509.Certificate, want Leaf, now time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := got.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("the authority does not vouch for the leaf: %v", err)
		}
	}
	if got.IsCA {
		t.Error("the leaf may itself sign certificates")
	}
	var organizations []string
	if want.Organization != "" {
		organizations = []string{want.Organization}
	}
	if diff := cmp.Diff(organizations, got.Subject.Organization); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if got.Subject.CommonName != want.CommonName {
		t.Errorf("holder is %q, want %q", got.Subject.CommonName, want.CommonName)
	}
	if diff := cmp.Diff(want.DNSNames, got.DNSNames); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.IPs, got.IPAddresses, cmp.Comparer(net.IP.Equal)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestIssueSaysWhichCertificateFails(t *testing.T) {
	directory := t.TempDir()
	authority := open(t, directory, "ca", start)
	err := authority.Issue(Leaf{File: "missing/leaf", CommonName: "someone"})
	if err == nil || !strings.Contains(err.Error(), "missing/leaf") {
		t.Errorf("error %v does not name the certificate", err)
	}
}

// shake lets a client and a server meet, each of which shows its own
// certificate and trusts its own authority.
func shake(t *testing.T, client, server tls.Certificate, clientTrusts, serverTrusts *Authority) (clientError, serverError error) {
	t.Helper()
	pool := func(authority *Authority) *x509.CertPool {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(read(t, authority.CertificateFile())) {
			t.Fatal("the authority's file holds no certificate")
		}
		return roots
	}
	now := func() time.Time { return start }
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	result := make(chan error, 1)
	serverConfig := &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: pool(serverTrusts), ClientAuth: tls.RequireAndVerifyClientCert, Time: now}
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			result <- err
			return
		}
		defer connection.Close()
		result <- tls.Server(connection, serverConfig).Handshake()
	}()
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	clientConfig := &tls.Config{RootCAs: pool(clientTrusts), ServerName: "127.0.0.1", Time: now,
		// Shown even if the server says that it would not trust it.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client, nil }}
	clientError = tls.Client(connection, clientConfig).Handshake()
	return clientError, <-result
}

func TestHandshakes(t *testing.T) {
	directory := t.TempDir()
	ours, theirs := open(t, directory, "ours", start), open(t, directory, "theirs", start)
	pair := func(authority *Authority, file string) tls.Certificate {
		issue(t, authority, Leaf{File: file, CommonName: file, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
		loaded, err := tls.LoadX509KeyPair(filepath.Join(directory, file+".crt"), filepath.Join(directory, file+".key"))
		if err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	client, server, stranger := pair(ours, "client"), pair(ours, "server"), pair(theirs, "stranger")

	if clientError, serverError := shake(t, client, server, ours, ours); clientError != nil || serverError != nil {
		t.Errorf("two leaves of one authority: client says %v, server says %v", clientError, serverError)
	}
	if _, serverError := shake(t, stranger, server, ours, ours); serverError == nil {
		t.Error("a server accepted a client of another authority")
	}
	if clientError, _ := shake(t, client, stranger, ours, ours); clientError == nil {
		t.Error("a client accepted a server of another authority")
	}
}

func TestServiceAccountKeyIsMadeOnce(t *testing.T) {
	directory := t.TempDir()
	if err := ServiceAccountKey(directory); err != nil {
		t.Fatal(err)
	}
	assertMode(t, 0o600, directory, "service-account.key")
	private, public := read(t, directory, "service-account.key"), read(t, directory, "service-account.pub")
	privateBlock, _ := pem.Decode(private)
	publicBlock, _ := pem.Decode(public)
	if privateBlock == nil || publicBlock == nil {
		t.Fatal("not PEM")
	}
	key, err := x509.ParseECPrivateKey(privateBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := x509.ParsePKIXPublicKey(publicBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if ecdsaKey, ok := verifier.(*ecdsa.PublicKey); !ok || !ecdsaKey.Equal(&key.PublicKey) {
		t.Error("the public key is not the private one's")
	}
	if err := ServiceAccountKey(directory); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(private, read(t, directory, "service-account.key")) || !bytes.Equal(public, read(t, directory, "service-account.pub")) {
		t.Error("a second call invalidated every token")
	}
	if err := ServiceAccountKey(filepath.Join(directory, "missing")); err == nil {
		t.Error("no error for a directory that does not exist")
	}
}

func TestKubeconfig(t *testing.T) {
	directory := t.TempDir()
	issue(t, open(t, directory, "ca", start), Leaf{File: "admin", CommonName: "kubernetes-admin"})
	file := filepath.Join(directory, "config", "admin.kubeconfig")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	// An earlier file that everybody may read must not stay so: there is a key
	// in the new one.
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteKubeconfig(file, "https://10.199.0.2:6443", "mine", directory, "ca", "admin"); err != nil {
		t.Fatal(err)
	}
	assertMode(t, 0o600, file)

	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://10.199.0.2:6443" {
		t.Errorf("server is %s", config.Host)
	}
	for what, pair := range map[string][2][]byte{
		"authority":   {read(t, directory, "ca.crt"), config.CAData},
		"certificate": {read(t, directory, "admin.crt"), config.CertData},
		"key":         {read(t, directory, "admin.key"), config.KeyData},
	} {
		if diff := cmp.Diff(string(pair[0]), string(pair[1])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if config.Insecure {
		t.Error("the server's certificate is not checked")
	}
	loaded, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.CurrentContext != "mine" {
		t.Errorf("context is %q, want the cluster's name", loaded.CurrentContext)
	}

	err = WriteKubeconfig(file, "https://10.199.0.2:6443", "mine", directory, "ca", "nobody")
	if err == nil || !strings.Contains(err.Error(), "nobody.crt") {
		t.Errorf("error %v does not name the missing certificate", err)
	}
}
