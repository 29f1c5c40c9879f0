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

// Proxy is one that signs people in and says in headers who they are: OpenShift's
// OAuth proxy, or another like it. Anybody can write such headers, so they count only
// from a peer that shows a certificate of a known authority, with a known name.
type Proxy struct {
	ProxyOptions
	authorities *x509.CertPool
}

// ProxyOptions are which proxies are trusted, and in what.
type ProxyOptions struct {
	// AuthorityFile has the authorities of their certificates, in PEM; Names are the
	// common names, DNS names or URIs in them.
	AuthorityFile string
	Names         []string
	// Impersonate: a user whom the proxy names without a token is believed, and the
	// server acts as that user. It needs the right to impersonate for it.
	Impersonate bool
	// UserHeader and GroupsHeader are where the proxy names the user; it must overwrite
	// what clients send there. No GroupsHeader believes no groups: many proxies
	// know of none, and let through what clients say.
	UserHeader, GroupsHeader string
}

// tokenHeader is where proxies put the token of who is signed in. It is reviewed as
// any other is.
const tokenHeader = "X-Forwarded-Access-Token"

// DefaultUserHeader is where most proxies name the user.
const DefaultUserHeader = "X-Forwarded-User"

// NewProxy trusts as the options say.
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

// Authorities are those that a server should ask certificates of; nil without a
// trusted proxy.
func (p *Proxy) Authorities() *x509.CertPool {
	if p == nil {
		return nil
	}
	return p.authorities
}

// Trusts says whether what a request's headers say of its user can be believed.
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

// signedIn is whom a proxy says that it has signed in.
type proxyUser struct {
	user   string
	groups []string
	token  string
}

// said is what the headers of a trusted proxy say. One that is there twice says
// nothing for certain: one of them may be the client's.
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

// reserved says whether a name is one of Kubernetes' own, which no proxy signs in.
func isReserved(name string) bool { return strings.HasPrefix(name, "system:") }
