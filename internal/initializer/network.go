// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	// The image has only this program, so the certificates of public CAs are part of it;
	// those of the system take precedence.
	_ "golang.org/x/crypto/x509roots/fallback"
)

const (
	dialTimeout = 15 * time.Second
	// maxRetryAfter is the longest wait that a server may request.
	maxRetryAfter = 10 * time.Minute
)

// newTransport returns a transport for many downloads at once. bundleVariable is the
// variable with more CA certificates: a path, or the certificates themselves, because the
// keys of a Secret become variables, not files.
//
// A connection that receives nothing for the time stall is closed: otherwise a connection
// that a firewall has dropped would never end.
func newTransport(environment Environment, bundleVariable string, stall time.Duration) (*http.Transport, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			connection, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &stallConn{Conn: connection, stall: stall}, nil
		},
		TLSHandshakeTimeout: dialTimeout,
		IdleConnTimeout:     stall / 2,
		MaxIdleConnsPerHost: 64,
		// Files are stored as they are, and offsets count their bytes.
		DisableCompression: true,
		// HTTP/2 would use one connection for all downloads of a host.
		Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(true)
	bundle, _ := environment.value(bundleVariable)
	if bundle == "" {
		return transport, nil
	}
	pool, err := withBundle(bundle)
	if err != nil {
		return nil, misconfigured("%s of the Secret: %v", bundleVariable, err)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	return transport, nil
}

// stallConn is a connection with a read timeout.
type stallConn struct {
	net.Conn
	stall time.Duration
}

func (s *stallConn) Read(buffer []byte) (int, error) {
	if err := s.SetReadDeadline(time.Now().Add(s.stall)); err != nil {
		return 0, err
	}
	return s.Conn.Read(buffer)
}

func withBundle(bundle string) (*x509.CertPool, error) {
	text := []byte(bundle)
	if !strings.HasPrefix(bundle, "-----BEGIN") {
		var err error
		if text, err = os.ReadFile(bundle); err != nil {
			// The value is not shown: it may be anything.
			return nil, errors.New("must be PEM certificates, or the path of a file with PEM certificates")
		}
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("has no PEM certificate")
	}
	return pool, nil
}

// unreachable explains why a request had no response, or an incomplete one.
// endpointVariable is the variable with the server's URL.
func unreachable(err error, endpoint, endpointVariable, bundleVariable string) *Failure {
	host := hostOf(err, endpoint)
	failure := &Failure{temporary: true, cause: err}
	failure.Advice = fmt.Sprintf("check %s in the Secret, and that no NetworkPolicy, firewall or missing proxy blocks the namespace", endpointVariable)
	var name *net.DNSError
	var operation *net.OpError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		failure.What = fmt.Sprintf("the host name %s cannot be resolved", name.Name)
	case errors.As(err, &name):
		failure.What = fmt.Sprintf("DNS does not answer for %s", name.Name)
		failure.Advice = "check that the NetworkPolicies of the namespace allow DNS"
	case isCertificate(err):
		failure.What, failure.temporary = fmt.Sprintf("the certificate of %s is not trusted: %v", host, certificateCause(err)), false
		failure.Advice = fmt.Sprintf("put its CA certificate into %s of the Secret", bundleVariable)
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		failure.What, failure.temporary = fmt.Sprintf("%s does not use TLS", host), false
		failure.Advice = fmt.Sprintf("if this is intended, start its URL with http:// in %s of the Secret", endpointVariable)
	case errors.As(err, &operation) && operation.Op == "proxyconnect":
		failure.What = fmt.Sprintf("the proxy does not connect to %s", host)
		failure.Advice = "check HTTPS_PROXY and NO_PROXY in the Secret"
	case errors.Is(err, syscall.ECONNREFUSED):
		failure.What = fmt.Sprintf("%s refuses connections", host)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		failure.What = fmt.Sprintf("no route to %s", host)
	case isTimeout(err):
		failure.What = fmt.Sprintf("%s does not respond", host)
	case isCut(err):
		failure.What = fmt.Sprintf("%s closed the connection", host)
	default:
		failure.What = fmt.Sprintf("the connection to %s failed: %v", host, withoutAddress(err))
	}
	return failure
}

// hostOf returns the host of a failed request, which after a redirect is not the endpoint.
func hostOf(err error, endpoint string) string {
	var request *url.Error
	if errors.As(err, &request) {
		if address, parseError := url.Parse(request.URL); parseError == nil && address.Host != "" {
			return address.Host
		}
	}
	return endpoint
}

// withoutAddress removes the URL of a request from its error: it may be signed.
func withoutAddress(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

func isCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}

func certificateCause(err error) error {
	var verification *tls.CertificateVerificationError
	if errors.As(err, &verification) {
		return verification.Err
	}
	return err
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		strings.Contains(err.Error(), "Connection closed by foreign host") // What minio-go makes of io.EOF.
}

// isTemporaryStatus tells whether a request may succeed later.
func isTemporaryStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500 && status != http.StatusNotImplemented
}

// retryAfter returns the wait that a server requests: Retry-After in seconds or as a date,
// or the rest of a rate limit's window, as in "api";r=0;t=55.
func retryAfter(header http.Header, now time.Time) time.Duration {
	wait := time.Duration(0)
	if value := header.Get("Retry-After"); value != "" {
		if seconds, err := strconv.Atoi(value); err == nil {
			wait = time.Duration(seconds) * time.Second
		} else if date, err := http.ParseTime(value); err == nil {
			wait = date.Sub(now)
		}
	} else if _, value, found := strings.Cut(header.Get("RateLimit"), ";t="); found {
		digits, _, _ := strings.Cut(value, ";")
		if seconds, err := strconv.Atoi(strings.TrimSpace(digits)); err == nil {
			wait = time.Duration(seconds) * time.Second
		}
	}
	return min(max(wait, 0), maxRetryAfter)
}
