// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// Proxy is an authenticating proxy that sends the user in headers, such as OpenShift's
// OAuth proxy. Any client can send such headers, so they are only trusted from a peer with
// a client certificate of a known CA and a known name.
type Proxy struct {
	ProxyOptions
	authorities *x509.CertPool
}

// ProxyOptions say which proxies are trusted.
type ProxyOptions struct {
	// AuthorityFile has the CAs of the proxies' certificates, in PEM; Names are the common
	// names, DNS names or URIs in the certificates.
	AuthorityFile string
	Names         []string
	// Impersonate trusts a user that the proxy names without a token: the server acts as
	// that user. It needs permission to impersonate.
	Impersonate bool
	// UserHeader and GroupsHeader are the headers with the user and the groups; the proxy
	// must overwrite the client's values. An empty GroupsHeader trusts no groups: many
	// proxies do not set any, and forward the client's values.
	UserHeader, GroupsHeader string
}

// tokenHeader is the header with the user's token. It is reviewed like any other token.
const tokenHeader = "X-Forwarded-Access-Token"

// DefaultUserHeader is the header that most proxies use.
const DefaultUserHeader = "X-Forwarded-User"

// NewProxy creates a Proxy.
func NewProxy(options ProxyOptions) (*Proxy, error) {
	content, err := os.ReadFile(options.AuthorityFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA of trusted proxies: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s has no PEM certificate", options.AuthorityFile)
	}
	if len(options.Names) == 0 {
		return nil, fmt.Errorf("list the names of the trusted proxies: without them every certificate signed by %s would be trusted", options.AuthorityFile)
	}
	if options.UserHeader == "" {
		options.UserHeader = DefaultUserHeader
	}
	return &Proxy{ProxyOptions: options, authorities: authorities}, nil
}

// Authorities returns the CAs of client certificates; nil without a trusted proxy.
func (p *Proxy) Authorities() *x509.CertPool {
	if p == nil {
		return nil
	}
	return p.authorities
}

// Trusts tells whether a request comes from a trusted proxy.
func (p *Proxy) Trusts(request *http.Request) bool {
	if p == nil || request.TLS == nil || len(request.TLS.PeerCertificates) == 0 {
		return false
	}
	chain := request.TLS.PeerCertificates
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: p.authorities, Intermediates: intermediates, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil && p.hasName(chain[0])
}

func (p *Proxy) hasName(certificate *x509.Certificate) bool {
	names := append([]string{certificate.Subject.CommonName}, certificate.DNSNames...)
	for _, uri := range certificate.URIs {
		names = append(names, uri.String())
	}
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(p.Names, name) })
}

// proxyUser is the user that a proxy has authenticated.
type proxyUser struct {
	user   string
	groups []string
	token  string
}

// userFromHeaders reads the headers of a trusted proxy. A header that is sent twice is
// refused: one of them may be the client's.
func (p *Proxy) userFromHeaders(request *http.Request) (user proxyUser, err error) {
	for header, value := range map[string]*string{tokenHeader: &user.token, p.UserHeader: &user.user} {
		values := request.Header.Values(header)
		if len(values) > 1 {
			return proxyUser{}, unauthorized(fmt.Sprintf("The proxy sent more than one %s header", header), "Configure the proxy to overwrite the header that clients send")
		}
		*value = strings.TrimSpace(strings.Join(values, ""))
	}
	if user.token != "" {
		user.token, err = checkToken(user.token)
		return user, err
	}
	if p.GroupsHeader == "" {
		return user, nil
	}
	for group := range strings.SplitSeq(strings.Join(request.Header.Values(p.GroupsHeader), ","), ",") {
		if group = strings.TrimSpace(group); group != "" {
			user.groups = append(user.groups, group)
		}
	}
	return user, nil
}

// isReserved tells whether a name is reserved for Kubernetes.
func isReserved(name string) bool { return strings.HasPrefix(name, "system:") }
