package access

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
	authorities *x509.CertPool
	names       []string
	// impersonate: a user whom the proxy names without a token is believed, and the
	// server acts as that user. It needs the right to impersonate for it.
	impersonate bool
}

// NewProxy trusts peers whose certificates are of the authorities in a file, in PEM,
// and have one of the names as common name, DNS name or URI.
func NewProxy(authorityFile string, names []string, impersonate bool) (*Proxy, error) {
	content, err := os.ReadFile(authorityFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority of trusted proxies: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s has no certificate in PEM", authorityFile)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("name the proxies that are trusted: every certificate of %s would be, else", authorityFile)
	}
	return &Proxy{authorities: authorities, names: names, impersonate: impersonate}, nil
}

// Authorities are those that a server should ask certificates of; nil without a
// trusted proxy.
func (proxy *Proxy) Authorities() *x509.CertPool {
	if proxy == nil {
		return nil
	}
	return proxy.authorities
}

// Trusts says whether what a request's headers say of its user can be believed.
func (proxy *Proxy) Trusts(request *http.Request) bool {
	if proxy == nil || request.TLS == nil || len(request.TLS.PeerCertificates) == 0 {
		return false
	}
	shown := request.TLS.PeerCertificates
	intermediates := x509.NewCertPool()
	for _, certificate := range shown[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{
		Roots: proxy.authorities, Intermediates: intermediates, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil && proxy.hasName(shown[0])
}

func (proxy *Proxy) hasName(certificate *x509.Certificate) bool {
	names := append([]string{certificate.Subject.CommonName}, certificate.DNSNames...)
	for _, uri := range certificate.URIs {
		names = append(names, uri.String())
	}
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(proxy.names, name) })
}

// signedIn is whom a proxy says that it has signed in.
type signedIn struct {
	user   string
	groups []string
	token  string
}

// said is what the headers of a trusted proxy say.
func said(request *http.Request) signedIn {
	return signedIn{
		token:  first(request, "X-Forwarded-Access-Token", "X-Auth-Request-Access-Token"),
		user:   first(request, "X-Forwarded-User", "X-Auth-Request-User"),
		groups: listed(request, "X-Forwarded-Groups", "X-Auth-Request-Groups"),
	}
}

// first is the first of some headers that says something.
func first(request *http.Request, headers ...string) string {
	for _, header := range headers {
		if value := strings.TrimSpace(request.Header.Get(header)); value != "" {
			return value
		}
	}
	return ""
}

// listed are the words of the first of some headers that has any.
func listed(request *http.Request, headers ...string) (words []string) {
	for _, header := range headers {
		for word := range strings.SplitSeq(strings.Join(request.Header.Values(header), ","), ",") {
			if word = strings.TrimSpace(word); word != "" {
				words = append(words, word)
			}
		}
		if len(words) > 0 {
			return words
		}
	}
	return nil
}

// reserved says whether a name is one of Kubernetes' own, which no proxy signs in.
func reserved(name string) bool { return strings.HasPrefix(name, "system:") }
