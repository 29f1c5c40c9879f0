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

	// The image has nothing in it but this program, so the certificates of the
	// public authorities come with it; those of the system win if there are any.
	_ "golang.org/x/crypto/x509roots/fallback"
)

const (
	dialTimeout = 15 * time.Second
	// longestWait is the most that a server may ask us to wait.
	maxRetryAfter = 10 * time.Minute
)

// newTransport is a transport for many downloads at once. bundleVariable names
// the variable with more certificates to trust: a path, or the certificates
// themselves, because a Secret's keys become variables and not files.
//
// A connection that is silent for as long as stall lasts is given up: without
// that, one that a firewall has forgotten would be waited for for ever.
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
		// What is fetched is stored as it is, and offsets count its bytes.
		DisableCompression: true,
		// HTTP/2 would put all downloads of a host on one connection.
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

// impatient is a connection on which something must arrive now and then.
type stallConn struct {
	net.Conn
	stall time.Duration
}

func (i *stallConn) Read(buffer []byte) (int, error) {
	if err := i.SetReadDeadline(time.Now().Add(i.stall)); err != nil {
		return 0, err
	}
	return i.Conn.Read(buffer)
}

func withBundle(bundle string) (*x509.CertPool, error) {
	text := []byte(bundle)
	if !strings.HasPrefix(bundle, "-----BEGIN") {
		var err error
		if text, err = os.ReadFile(bundle); err != nil {
			// Not shown: it may be anything.
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

// unreachable explains why a request had no answer, or none to its end.
// endpointVariable is what chooses the server.
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

// hostOf is the host that a failed request was for, which after a redirect is
// not the one that was asked first.
func hostOf(err error, endpoint string) string {
	var request *url.Error
	if errors.As(err, &request) {
		if address, parseError := url.Parse(request.URL); parseError == nil && address.Host != "" {
			return address.Host
		}
	}
	return endpoint
}

// withoutAddress drops the address of a request from its error: it may be signed.
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

// isTemporaryStatus says whether an answer may be another one later.
func isTemporaryStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500 && status != http.StatusNotImplemented
}

// retryAfter is how long a server asks us to wait: Retry-After in seconds or as a
// date, or the time that is left of a rate limit's window, as in "api";r=0;t=55.
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
