// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/operator/admission"
)

// clientAuthorities are the certificates in a file of PEM blocks.
func clientAuthorities(file string) (*x509.CertPool, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("webhook.clientCAFile: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("webhook.clientCAFile: %s has no certificate", file)
	}
	return pool, nil
}

// verifyClients makes the webhook server verify client certificates. The file is read
// for each connection, because CAs are renewed, and the API server keeps its connections.
// admission.OnlyAPIServer refuses a missing certificate, because the readiness probe
// connects without one.
func verifyClients(settings config.Webhook) []func(*tls.Config) {
	if settings.ClientCAFile == "" {
		return nil
	}
	return []func(*tls.Config){func(server *tls.Config) {
		server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pool, err := clientAuthorities(settings.ClientCAFile)
			if err != nil {
				return nil, err
			}
			forClient := server.Clone()
			forClient.GetConfigForClient = nil
			forClient.ClientAuth, forClient.ClientCAs = tls.VerifyClientCertIfGiven, pool
			return forClient, nil
		}
	}}
}

// restrictCallers lets only the API server call the webhooks if a CA for its client
// certificate is configured; else only clients that know the random path.
func restrictCallers(settings config.Webhook, random *randomPath, handlers map[string]http.Handler) map[string]http.Handler {
	if settings.ClientCAFile == "" {
		if random == nil {
			return handlers
		}
		return random.guard(handlers)
	}
	restricted := make(map[string]http.Handler, len(handlers))
	for path, handler := range handlers {
		restricted[path] = admission.OnlyAPIServer(settings.ClientNames, handler)
	}
	return restricted
}
