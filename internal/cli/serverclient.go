// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// serverVariable has the address of Trireme's server.
const serverVariable = "TRIREME_SERVER"

// maxAnswer is more than the largest record.
const maxAnswer = 16 << 20

// serverConnector has the settings of the connection to Trireme's server.
type serverConnector struct {
	*environment
	address, authorityFile, operatorNamespace string
}

func (s *serverConnector) addFlags(flags *pflag.FlagSet) {
	// Not called server: that flag is kubectl's, and names the API server.
	flags.StringVar(&s.address, "trireme-server", os.Getenv(serverVariable), "Address of Trireme's server, such as https://trireme.example.com; default: $"+serverVariable)
	flags.StringVar(&s.authorityFile, "trireme-server-ca", "", "PEM file with the CA of the server; default: the CAs of the system, and the CA in ConfigMap trireme-ca")
	flags.StringVar(&s.operatorNamespace, "operator-namespace", "trireme-system", "Namespace of Trireme, with ConfigMap trireme-ca")
}

// serverClient calls Trireme's server with the user's token.
type serverClient struct {
	address string
	http    *http.Client
}

// connect returns a client with the token of the kubeconfig.
func (s *serverConnector) connect(command *cobra.Command) (*serverClient, error) {
	parsed, err := url.Parse(s.address)
	if s.address == "" || err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return nil, &failure{
			code: exitUsage, message: fmt.Sprintf("the address of Trireme's server must be like https://trireme.example.com, not %q", s.address), reason: "Usage", page: "cli.md#history",
			suggestions: []string{"Set it: --trireme-server URL, or the environment variable " + serverVariable, "Ask a cluster administrator for the address"},
		}
	}
	found := &serverClient{address: strings.TrimSuffix(s.address, "/")}
	if s.server != nil {
		found.http = &http.Client{Transport: s.server}
		return found, nil
	}
	config, err := s.connection()
	if err != nil {
		return nil, err
	}
	if config.Impersonate.UserName != "" {
		return nil, usageFailure(command, "--as does not work with Trireme's server, which only accepts tokens; use --token")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = s.tls(command.Context()); err != nil {
		return nil, err
	}
	authenticated, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, err
	}
	// A token must not follow a redirect to another host.
	found.http = &http.Client{Transport: authenticated, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return found, nil
}

// tls trusts the CAs of the system, and the one of the server.
func (s *serverConnector) tls(ctx context.Context) (*tls.Config, error) {
	if s.authorityFile != "" {
		authority, err := os.ReadFile(s.authorityFile)
		if err != nil {
			return nil, inputFailure("cannot read --trireme-server-ca", err.Error())
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(authority) {
			return nil, inputFailure("--trireme-server-ca has no certificate in PEM", s.authorityFile)
		}
		return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}, nil
	}
	authorities, err := x509.SystemCertPool()
	if err != nil {
		authorities = x509.NewCertPool()
	}
	api, err := s.client()
	if err != nil {
		return nil, err
	}
	var published corev1.ConfigMap
	// Without it, the certificate of an ingress may still be trusted.
	if api.Get(ctx, client.ObjectKey{Namespace: s.operatorNamespace, Name: "trireme-ca"}, &published) == nil {
		authorities.AppendCertsFromPEM([]byte(published.Data["ca.crt"]))
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}, nil
}

// read reads an answer as JSON.
func (s *serverClient) read(ctx context.Context, path string, into any) error {
	body, err := s.open(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("read the answer of Trireme's server: %w", err)
	}
	return nil
}

// open returns the body of a successful answer. Other answers are errors of the server.
func (s *serverClient) open(ctx context.Context, method, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := s.http.Do(request)
	if err != nil {
		return nil, s.unreachable(err)
	}
	if response.StatusCode < http.StatusMultipleChoices {
		return response.Body, nil
	}
	defer response.Body.Close()
	var refused apierror.Error
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil || json.Unmarshal(content, &refused) != nil || refused.Message == "" {
		return nil, s.unreachable(fmt.Errorf("the answer is %s, which is not one of Trireme's server", response.Status))
	}
	return nil, &refused
}

func (s *serverClient) unreachable(err error) *failure {
	return &failure{code: exitError, message: "cannot reach Trireme's server at " + s.address, reason: "Unreachable", details: []string{err.Error()}, page: "cli.md#history", suggestions: []string{
		"Check the address: --trireme-server, or the environment variable " + serverVariable,
		"If the certificate is not trusted, pass its CA: --trireme-server-ca FILE",
	}}
}

// isMissing reports whether the server has answered that an object does not exist.
func isMissing(err error) bool {
	refused, is := errors.AsType[*apierror.Error](err)
	return is && refused.Code == http.StatusNotFound
}

// explainServer explains an error of Trireme's server.
func explainServer(refused *apierror.Error) *failure {
	f := &failure{code: exitError, message: refused.Message, reason: refused.Reason, suggestions: refused.Suggestions}
	switch refused.Code {
	case http.StatusUnauthorized:
		f.code = exitForbidden
		f.suggestions = append(f.suggestions, "A kubeconfig with a client certificate has no token. Pass one: --token \"$(kubectl create token NAME)\"")
	case http.StatusForbidden:
		f.code = exitForbidden
	case http.StatusNotFound:
		f.code = exitNotFound
	case http.StatusBadRequest:
		f.code = exitUsage
	}
	return f
}
