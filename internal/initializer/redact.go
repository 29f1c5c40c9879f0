// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Environment looks up an environment variable.
type Environment func(name string) string

// value returns the first variable that is set, and its name. Values of Secrets often end
// with an accidental line feed.
func (e Environment) value(names ...string) (value, name string) {
	for _, name := range names {
		if value := strings.TrimSpace(e(name)); value != "" {
			return value, name
		}
	}
	return "", names[0]
}

const (
	accessKeyVariable    = "AWS_ACCESS_KEY_ID"
	secretKeyVariable    = "AWS_SECRET_ACCESS_KEY"
	sessionTokenVariable = "AWS_SESSION_TOKEN"
)

var (
	tokenVariables      = []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}
	credentialVariables = append([]string{accessKeyVariable, secretKeyVariable, sessionTokenVariable}, tokenVariables...)
	proxyVariables      = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"}
)

// shortestSecret is the minimum length of a value to redact: shorter values protect
// nothing, and would be found inside other words.
const shortestSecret = 6

// redactor removes credentials. Our own messages have none; this is for messages of
// servers and libraries.
type redactor struct{ replace *strings.Replacer }

func newRedactor(environment Environment) redactor {
	var secrets []string
	for _, name := range credentialVariables {
		secrets = append(secrets, environment(name), strings.TrimSpace(environment(name)))
	}
	for _, name := range proxyVariables {
		if proxy, err := url.Parse(environment(name)); err == nil && proxy.User != nil {
			password, _ := proxy.User.Password()
			secrets = append(secrets, proxy.User.String(), password)
		}
	}
	for _, secret := range slices.Clone(secrets) {
		secrets = append(secrets, url.QueryEscape(secret), url.PathEscape(secret))
	}
	// The longest first, so that no part of a secret remains.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, secret := range secrets {
		if len(secret) >= shortestSecret {
			pairs = append(pairs, secret, "***")
		}
	}
	return redactor{replace: strings.NewReplacer(pairs...)}
}

var (
	// query is the query of a URL, which may have a signature.
	query = regexp.MustCompile(`(https?://[^\s"'?]*)\?[^\s"']*`)
	// userinfo is the user and password in a URL.
	userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/"'@]*@`)
)

// text returns a text without credentials.
func (r redactor) text(text string) string {
	text = r.replace.Replace(text)
	text = query.ReplaceAllString(text, "$1")
	return userinfo.ReplaceAllString(text, "$1")
}
