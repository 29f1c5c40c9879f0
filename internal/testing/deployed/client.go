// SPDX-License-Identifier: Apache-2.0

package deployed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/internal/engine/config"
)

// WebhookClient is the name in the certificate that the API server shows to webhooks.
const WebhookClient = "kube-apiserver-webhook-client"

// Authority issues client certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes one.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	authority := &Authority{}
	authority.certificate, authority.key = issue(t, "authority", nil)
	return authority
}

// PEM is the authority's own certificate.
func (authority *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.certificate.Raw})
}

// Issue is the certificate of a client, with its key.
func (authority *Authority) Issue(t testing.TB, name string) (certificate, key []byte) {
	t.Helper()
	leaf, private := issue(t, name, authority)
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// Client is a certificate for a TLS client.
func (authority *Authority) Client(t testing.TB, name string) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(authority.Issue(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// issue makes a certificate that an authority signs, or itself if there is none.
func issue(t testing.TB, name string, by *Authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		by = &Authority{template, key}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, by.certificate, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// PresentCertificate has an API server that is not started yet show a certificate of
// this authority to webhooks.
func (authority *Authority) PresentCertificate(t testing.TB, environment *envtest.Environment) {
	t.Helper()
	certificate, key := authority.Issue(t, WebhookClient)
	kubeconfig := Write(t, "kubeconfig", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","users":[{"name":"*","user":{"client-certificate":%q,"client-key":%q}}]}`,
		Write(t, "client.crt", certificate), Write(t, "client.key", key)))
	// As on the local cluster: cluster/internal/component/templates/admission.yaml.
	file := Write(t, "admission.yaml", fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: &webhooks
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %s
- name: ValidatingAdmissionWebhook
  configuration: *webhooks
`, kubeconfig))
	environment.ControlPlane.GetAPIServer().Configure().Append("admission-control-config-file", file)
}

// Trust has an operator refuse everybody but an API server with a certificate of this
// authority.
func (authority *Authority) Trust(t testing.TB) func(*config.Config) {
	t.Helper()
	file := Write(t, "ca.crt", authority.PEM())
	return func(settings *config.Config) {
		settings.Webhook.ClientCAFile, settings.Webhook.ClientNames = file, []string{WebhookClient}
	}
}
