// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// All messages about unreachable servers.
func TestMessagesAboutTheNetwork(t *testing.T) {
	const look = "; check THE_ENDPOINT in the Secret, and that no NetworkPolicy, firewall or missing proxy blocks the namespace"
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	cases := map[string]struct {
		err       error
		want      string
		permanent bool
	}{
		"an unknown name":   {err: dial(&net.DNSError{Err: "no such host", Name: "minio.example", IsNotFound: true}), want: "the host name minio.example cannot be resolved" + look},
		"no nameserver":     {err: dial(&net.DNSError{Err: "i/o timeout", Name: "minio.example", IsTimeout: true}), want: "DNS does not answer for minio.example; check that the NetworkPolicies of the namespace allow DNS"},
		"refused":           {err: dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), want: "store.example refuses connections" + look},
		"no route":          {err: dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), want: "no route to store.example" + look},
		"no answer":         {err: dial(os.ErrDeadlineExceeded), want: "store.example does not respond" + look},
		"no answer in time": {err: context.DeadlineExceeded, want: "store.example does not respond" + look},
		"cut":               {err: io.ErrUnexpectedEOF, want: "store.example closed the connection" + look},
		"reset":             {err: os.NewSyscallError("read", syscall.ECONNRESET), want: "store.example closed the connection" + look},
		"no proxy":          {err: &net.OpError{Op: "proxyconnect", Net: "tcp", Err: syscall.ECONNREFUSED}, want: "the proxy does not connect to store.example; check HTTPS_PROXY and NO_PROXY in the Secret"},
		"not trusted":       {err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, permanent: true, want: "the certificate of store.example is not trusted: x509: certificate signed by unknown authority; put its CA certificate into THE_BUNDLE of the Secret"},
		"no TLS":            {err: tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, permanent: true, want: "store.example does not use TLS; if this is intended, start its URL with http:// in THE_ENDPOINT of the Secret"},
		"something else":    {err: errors.New("a word of the library"), want: "the connection to store.example failed: a word of the library" + look},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := &url.Error{Op: "Get", URL: "https://store.example/a/b?X-Amz-Signature=signatureOfTheTests", Err: tc.err}
			failure := unreachable(err, "hub.example", "THE_ENDPOINT", "THE_BUNDLE")
			if failure.Error() != tc.want {
				t.Errorf("got\n%v\nwant\n%s", failure, tc.want)
			}
			if failure.temporary == tc.permanent {
				t.Errorf("temporary: %t", failure.temporary)
			}
		})
	}
	if got := unreachable(io.EOF, "hub.example", "THE_ENDPOINT", "").What; got != "hub.example closed the connection" {
		t.Errorf("without an address: %s", got)
	}
}

// CA certificates may be a text or a file.
func TestCertificates(t *testing.T) {
	plain := newHubServer(t, "datasets/owner/name", map[string]string{"README.md": "read me"})
	secure := httptest.NewTLSServer(plain.api.Config.Handler)
	t.Cleanup(secure.Close)
	host := strings.TrimPrefix(secure.URL, "https://")
	bundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	file := filepath.Join(t.TempDir(), "bundle.pem")
	if err := os.WriteFile(file, []byte(bundle), 0o666); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{hubEndpointVariable: secure.URL, "HF_TOKEN": testToken}
	newRunner(t, environment).refused("hf://owner/name", fmt.Sprintf("the certificate of %s is not trusted: x509: certificate signed by unknown authority; put its CA certificate into REQUESTS_CA_BUNDLE of the Secret", host))
	for _, value := range []string{bundle, "\n" + bundle, file} {
		environment[hubBundleVariable] = value
		newRunner(t, environment).fetched("hf://owner/name")
	}

	store := newS3Server(t, map[string]string{"set/a": "a"})
	secure = httptest.NewTLSServer(store.Config.Handler)
	t.Cleanup(secure.Close)
	environment = store.environment()
	environment["AWS_ENDPOINT_URL_S3"] = secure.URL
	newRunner(t, environment).refused("s3://data/set", fmt.Sprintf("the certificate of %s is not trusted: x509: certificate signed by unknown authority; put its CA certificate into AWS_CA_BUNDLE of the Secret", strings.TrimPrefix(secure.URL, "https://")))
	environment[s3BundleVariable] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	newRunner(t, environment).fetched("s3://data/set")
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cases := map[string]struct {
		name, value string
		want        time.Duration
	}{
		"seconds":          {"Retry-After", "7", 7 * time.Second},
		"a date":           {"Retry-After", "Fri, 02 Jan 2026 03:05:05 GMT", time.Minute},
		"a date long ago":  {"Retry-After", "Fri, 02 Jan 2026 03:00:00 GMT", 0},
		"below zero":       {"Retry-After", "-5", 0},
		"nonsense":         {"Retry-After", "soon", 0},
		"for ever":         {"Retry-After", "99999999", maxRetryAfter},
		"a limit":          {"RateLimit", `"api";r=0;t=55`, 55 * time.Second},
		"a limit and more": {"RateLimit", `"api";r=0;t=55;q=500`, 55 * time.Second},
		"nothing":          {"Date", "7", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := retryAfter(http.Header{http.CanonicalHeaderKey(tc.name): {tc.value}}, now); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestPatience(t *testing.T) {
	temporary := &Failure{What: "not now", temporary: true}
	silent := func(string, ...any) {}
	fast := timing{pause: time.Millisecond, maxPause: 2 * time.Millisecond}
	t.Run("ends", func(t *testing.T) {
		tries := 0
		err := retry(t.Context(), fast, time.Second, silent, func() int64 { return 0 }, func() error { tries++; return temporary })
		if !errors.Is(err, temporary) || tries < 2 {
			t.Errorf("%d tries: %v", tries, err)
		}
	})
	t.Run("is renewed by every byte", func(t *testing.T) {
		began, position := time.Now(), int64(0)
		err := retry(t.Context(), fast, 50*time.Millisecond, silent, func() int64 { return position }, func() error {
			if time.Since(began) < 200*time.Millisecond {
				position++
			}
			return temporary
		})
		if took := time.Since(began); !errors.Is(err, temporary) || took < 200*time.Millisecond || took > time.Minute {
			t.Errorf("ended after %s: %v", took, err)
		}
	})
	t.Run("is not spent while the server sends us away", func(t *testing.T) {
		tries := 0
		err := retry(t.Context(), fast, time.Second, silent, func() int64 { return 0 }, func() error {
			if tries++; tries > 4 {
				return nil
			}
			return &Failure{What: "later", temporary: true, after: 1100 * time.Millisecond}
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("has an end with servers that always send us away", func(t *testing.T) {
		err := retry(t.Context(), fast, 50*time.Millisecond, silent, func() int64 { return 0 }, func() error {
			return &Failure{What: "later", temporary: true, after: maxServerWait + 1}
		})
		if err == nil {
			t.Error("no error")
		}
	})
	t.Run("is none for what is final", func(t *testing.T) {
		tries, final := 0, &Failure{What: "never"}
		if err := retry(t.Context(), fast, time.Hour, silent, func() int64 { return 0 }, func() error { tries++; return final }); !errors.Is(err, final) || tries != 1 {
			t.Errorf("%d tries: %v", tries, err)
		}
	})
	t.Run("is none after the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		if err := retry(ctx, timing{pause: time.Hour}, 5*time.Hour, silent, func() int64 { return 0 }, func() error { cancel(); return temporary }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// The image has no certificates, so the program must.
func TestPublicCAs(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := exec.Command(self)
	program.Env = []string{asProgram + "=" + countAuthorities, "SSL_CERT_FILE=/nowhere", "SSL_CERT_DIR=/nowhere"}
	output, err := program.CombinedOutput()
	if err != nil || string(output) != "some" {
		t.Errorf("%s authorities are trusted where a system has none: %v", output, err)
	}
}
