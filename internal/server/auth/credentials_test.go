// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

func TestTokenOf(t *testing.T) {
	for name, test := range map[string]struct {
		url     string
		headers http.Header
		want    string
		refused bool
	}{
		"bearer":                      {headers: http.Header{"Authorization": {"Bearer abc"}}, want: "abc"},
		"any case, more spaces":       {headers: http.Header{"Authorization": {"bearer   abc "}}, want: "abc"},
		"a password is no token":      {headers: http.Header{"Authorization": {"Basic YTpi"}}},
		"nothing after the word":      {headers: http.Header{"Authorization": {"Bearer "}}},
		"nothing":                     {},
		"never from the address":      {url: "/x?token=abc&access_token=abc&authorization=Bearer+abc"},
		"with a WebSocket":            {headers: http.Header{"Sec-Websocket-Protocol": {"trireme.v1, base64url.bearer.authorization.k8s.io.YWJjPz8_"}}, want: "abc???"},
		"with padding":                {headers: http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.YWI="}}, want: "ab"},
		"a header comes first":        {headers: http.Header{"Authorization": {"Bearer abc"}, "Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.eHl6"}}, want: "abc"},
		"not base64url":               {headers: http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.a+b"}}, refused: true},
		"an empty one in a WebSocket": {headers: http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io."}}, refused: true},
		"bytes that are no text":      {headers: http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io._w"}}, refused: true},
		"two headers":                 {headers: http.Header{"Authorization": {"Bearer abc", "Bearer xyz"}}, refused: true},
		"letters of no token":         {headers: http.Header{"Authorization": {"Bearer a\u00e4c"}}, refused: true},
		"a line of its own":           {headers: http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.YQpi"}}, refused: true},
		"other protocols":             {headers: http.Header{"Sec-Websocket-Protocol": {"graphql-ws"}}},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodGet, "/"+test.url, nil)
			request.Header = test.headers
			got, err := tokenOf(request)
			if got != test.want || (err != nil) != test.refused {
				t.Errorf("got %q and %v", got, err)
			}
			if err != nil && apierror.From(err).Code != http.StatusUnauthorized {
				t.Errorf("refused with %v", apierror.From(err).Code)
			}
		})
	}
}

func TestProxiesAreTrustedByCertificate(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	proxy, err := NewProxy(ProxyOptions{AuthorityFile: ours.file, Names: []string{"oauth-proxy", "spiffe://cluster/proxy"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		shown []*x509.Certificate
		plain bool
		want  bool
	}{
		"the proxy":                 {shown: ours.issue(t, "oauth-proxy", x509.ExtKeyUsageClientAuth), want: true},
		"by another of its names":   {shown: ours.issue(t, "other", x509.ExtKeyUsageClientAuth, "oauth-proxy"), want: true},
		"by its URI":                {shown: ours.issue(t, "other", x509.ExtKeyUsageClientAuth, "spiffe://cluster/proxy"), want: true},
		"somebody else's name":      {shown: ours.issue(t, "jane", x509.ExtKeyUsageClientAuth)},
		"of another authority":      {shown: theirs.issue(t, "oauth-proxy", x509.ExtKeyUsageClientAuth)},
		"a certificate of a server": {shown: ours.issue(t, "oauth-proxy", x509.ExtKeyUsageServerAuth)},
		"no certificate":            {},
		"no TLS":                    {plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodGet, "/", nil)
			if !test.plain {
				request.TLS = &tls.ConnectionState{PeerCertificates: test.shown}
			}
			if got := proxy.Trusts(request); got != test.want {
				t.Errorf("trusted: %v", got)
			}
			var none *Proxy
			if none.Trusts(request) {
				t.Error("trusted although no proxy is")
			}
		})
	}
}

func TestNewProxyRefuses(t *testing.T) {
	authority := newAuthority(t)
	for name, test := range map[string]struct {
		file  string
		names []string
	}{
		"a file that is not there":     {file: "/does/not/exist", names: []string{"proxy"}},
		"a file without certificates":  {file: authority.empty, names: []string{"proxy"}},
		"no names, which would be all": {file: authority.file},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewProxy(ProxyOptions{AuthorityFile: test.file, Names: test.names}); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestSourceOf(t *testing.T) {
	authority := newAuthority(t)
	proxy, err := NewProxy(ProxyOptions{AuthorityFile: authority.file, Names: []string{"oauth-proxy"}})
	if err != nil {
		t.Fatal(err)
	}
	trusted := &tls.ConnectionState{PeerCertificates: authority.issue(t, "oauth-proxy", x509.ExtKeyUsageClientAuth)}
	for name, test := range map[string]struct {
		forwarded []string
		tls       *tls.ConnectionState
		want      string
	}{
		"the peer":                           {want: "192.0.2.1"},
		"anybody can say anything":           {forwarded: []string{"198.51.100.7"}, want: "192.0.2.1"},
		"a trusted proxy":                    {forwarded: []string{"198.51.100.7"}, tls: trusted, want: "198.51.100.7"},
		"only what the proxy saw itself":     {forwarded: []string{"203.0.113.9, 198.51.100.7"}, tls: trusted, want: "198.51.100.7"},
		"also in a header of its own":        {forwarded: []string{"203.0.113.9", "2001:db8::1"}, tls: trusted, want: "2001:db8::1"},
		"what is no address is not believed": {forwarded: []string{"jane"}, tls: trusted, want: "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodGet, "/", nil)
			request.Header["X-Forwarded-For"], request.TLS = test.forwarded, test.tls
			if got := SourceOf(request, proxy); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestUserFromHeaders(t *testing.T) {
	for name, test := range map[string]struct {
		options ProxyOptions
		headers http.Header
		want    proxyUser
		refused bool
	}{
		"a token":                      {headers: http.Header{"X-Forwarded-User": {"jane"}, "X-Forwarded-Access-Token": {" abc "}}, want: proxyUser{user: "jane", token: "abc"}},
		"a name":                       {headers: http.Header{"X-Forwarded-User": {" jane "}}, want: proxyUser{user: "jane"}},
		"groups that no header is for": {headers: http.Header{"X-Forwarded-User": {"jane"}, "X-Forwarded-Groups": {"admins"}, "X-Auth-Request-Groups": {"admins"}}, want: proxyUser{user: "jane"}},
		"groups": {
			options: ProxyOptions{GroupsHeader: "X-Forwarded-Groups"}, headers: http.Header{"X-Forwarded-User": {"jane"}, "X-Forwarded-Groups": {"team-cv, team-nlp", "team-x"}},
			want: proxyUser{user: "jane", groups: []string{"team-cv", "team-nlp", "team-x"}},
		},
		"only the header that is named": {
			options: ProxyOptions{UserHeader: "X-Auth-Request-User"}, headers: http.Header{"X-Forwarded-User": {"max"}, "X-Auth-Request-User": {"jane"}}, want: proxyUser{user: "jane"},
		},
		"two users":          {headers: http.Header{"X-Forwarded-User": {"max", "jane"}}, refused: true},
		"two tokens":         {headers: http.Header{"X-Forwarded-Access-Token": {"abc", "xyz"}}, refused: true},
		"no token's letters": {headers: http.Header{"X-Forwarded-Access-Token": {"a b"}}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			if test.options.UserHeader == "" {
				test.options.UserHeader = DefaultUserHeader
			}
			request := httptest.NewRequest(http.MethodGet, "/", nil)
			request.Header = test.headers
			got, err := (&Proxy{ProxyOptions: test.options}).userFromHeaders(request)
			if (err != nil) != test.refused {
				t.Fatalf("%+v and %v", got, err)
			}
			if difference := cmp.Diff(test.want, got, cmp.AllowUnexported(proxyUser{})); !test.refused && difference != "" {
				t.Error(difference)
			}
		})
	}
}
