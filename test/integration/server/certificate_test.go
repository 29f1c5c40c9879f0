// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/operator/issuer"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// issuedNames are those that the operator of these tests issues a certificate for.
var issuedNames = []string{
	"trireme-server", "trireme-server.trireme-system", "trireme-server.trireme-system.svc", "trireme-server.trireme-system.svc.cluster.local", "localhost",
	"trireme-history.trireme-system.svc",
	"train.example.com", "192.0.2.7",
}

// certified is a server that has its certificate from the operator.
type certified struct {
	*cluster
	folder string
	server *program
}

// startCertified runs operator and server as they are deployed, beside each other.
func startCertified(t *testing.T) *certified {
	t.Helper()
	cluster := startCluster(t)
	if err := cluster.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deployed.Namespace}}); err != nil {
		t.Fatal(err)
	}
	cluster.create(t, deployed.Manifests(t, "Role*/trireme-ca-reader"))
	deployed.Start(t, cluster.environment, deployed.Settings(t, func(settings *config.Config) {
		settings.Server.ExtraNames = []string{"train.example.com", "192.0.2.7"}
	})).WaitUntilReady(t)
	made := &certified{cluster: cluster, folder: t.TempDir()}
	eventually.Succeeds(t, "the certificate is issued", func() error { return made.mount(t.Context()) })
	made.keepMounted(t)
	made.server = cluster.startServer(t, "--tls-cert-file", filepath.Join(made.folder, "tls.crt"), "--tls-key-file", filepath.Join(made.folder, "tls.key"))
	return made
}

// mount writes the Secret to the server's folder, as a kubelet does.
func (certified *certified) mount(ctx context.Context) error {
	var secret corev1.Secret
	if err := certified.client.Get(ctx, secretKey, &secret); err != nil {
		return err
	}
	for _, name := range []string{corev1.TLSPrivateKeyKey, corev1.TLSCertKey} {
		if len(secret.Data[name]) == 0 {
			return fmt.Errorf("the Secret has no %s", name)
		}
		path := filepath.Join(certified.folder, name)
		if err := errors.Join(os.WriteFile(path+".new", secret.Data[name], 0o600), os.Rename(path+".new", path)); err != nil {
			return err
		}
	}
	return nil
}

// keepMounted goes on with it until the test ends.
func (certified *certified) keepMounted(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			// A Secret that is deleted stays mounted.
			_ = certified.mount(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
}

var (
	secretKey    = client.ObjectKey{Namespace: deployed.Namespace, Name: "trireme-server-tls"}
	authorityKey = client.ObjectKey{Namespace: deployed.Namespace, Name: "trireme-webhook"}
	publishedKey = client.ObjectKey{Namespace: deployed.Namespace, Name: "trireme-ca"}
)

func (certified *certified) secret(t *testing.T, key client.ObjectKey) *corev1.Secret {
	t.Helper()
	var secret corev1.Secret
	if err := certified.client.Get(t.Context(), key, &secret); err != nil {
		t.Fatal(err)
	}
	return &secret
}

// published is the CA that clients get.
func (certified *certified) published(t *testing.T) string {
	t.Helper()
	var published corev1.ConfigMap
	if err := certified.client.Get(t.Context(), publishedKey, &published); err != nil {
		t.Fatal(err)
	}
	return published.Data["ca.crt"]
}

// verify connects to the server under a name, and trusts a CA alone. It returns the
// certificate that the server shows.
func (certified *certified) verify(t *testing.T, authority, name string) (*x509.Certificate, error) {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(authority)) {
		return nil, fmt.Errorf("the CA is no certificate: %q", authority)
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name}}
	connection, err := dialer.DialContext(t.Context(), "tcp", certified.server.url[len("https://"):])
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// wantShown waits until the server shows a certificate that satisfies.
func (certified *certified) wantShown(t *testing.T, what string, satisfies func(*x509.Certificate) bool) {
	t.Helper()
	eventually.Succeeds(t, what, func() error {
		shown, err := certified.verify(t, certified.published(t), issuedNames[2])
		if err == nil && !satisfies(shown) {
			err = fmt.Errorf("it shows a certificate of %s, valid until %s", shown.Issuer, shown.NotAfter)
		}
		return err
	})
}

// expiring replaces the certificate with one of the same CA that is due.
func (certified *certified) expiring(t *testing.T) *x509.Certificate {
	t.Helper()
	authority := certified.secret(t, authorityKey)
	parsed, err := issuer.Parse(authority.Data["ca.crt"], authority.Data["ca.key"])
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := parsed.Issue(issuedNames, time.Now().Add(-61*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(certificate)
	secret := certified.secret(t, secretKey)
	secret.Annotations = map[string]string{"training.kubeflow.org/issued-certificate": hex.EncodeToString(sum[:])}
	secret.Data["tls.crt"], secret.Data["tls.key"] = certificate, key
	if err := certified.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return leaf(t, certificate)
}

func leaf(t *testing.T, certificate []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(certificate)
	if block == nil {
		t.Fatalf("no PEM: %s", certificate)
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// replaceAuthority makes the operator have another CA, as the guide says, and waits
// until it is published.
func (certified *certified) replaceAuthority(t *testing.T) {
	t.Helper()
	before := certified.published(t)
	if err := certified.client.Patch(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: authorityKey.Namespace, Name: authorityKey.Name}},
		client.RawPatch("application/merge-patch+json", []byte(`{"data":null}`))); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "another CA is published", func() error {
		if certified.published(t) == before {
			return errors.New("it is the same")
		}
		return nil
	})
}

func TestServerCertificateIsIssued(t *testing.T) {
	certified := startCertified(t)
	jane := certified.person(t, "jane")
	as := rest.AnonymousClientConfig(certified.environment.Config)
	as.BearerToken = jane.token
	cluster, err := kubernetes.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a user gets the CA, and nothing else", func(t *testing.T) {
		published, err := cluster.CoreV1().ConfigMaps(deployed.Namespace).Get(t.Context(), "trireme-ca", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(published.Data) != 1 || len(published.BinaryData) > 0 {
			t.Errorf("more than the CA is published: %v", published)
		}
		for _, name := range issuedNames {
			if _, err := certified.verify(t, published.Data["ca.crt"], name); err != nil {
				t.Errorf("as %s: %v", name, err)
			}
		}
		if _, err := certified.verify(t, published.Data["ca.crt"], "trireme-webhook.trireme-system.svc"); err == nil {
			t.Error("the server can pass for the webhook")
		}
		if _, err := cluster.CoreV1().Secrets(deployed.Namespace).Get(t.Context(), secretKey.Name, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the server's key: %v", err)
		}
		if _, err := cluster.CoreV1().ConfigMaps(deployed.Namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("all ConfigMaps: %v", err)
		}
	})
	t.Run("the server has no key of the CA", func(t *testing.T) {
		if secret := certified.secret(t, secretKey); len(secret.Data["ca.key"]) > 0 || secret.Type != corev1.SecretTypeTLS {
			t.Errorf("Secret of type %s with %d values", secret.Type, len(secret.Data))
		}
	})
	t.Run("the operator writes its own objects alone", func(t *testing.T) {
		certified.wantOperatorConfined(t)
	})
	t.Run("a deleted Secret and a changed ConfigMap", func(t *testing.T) {
		before := leaf(t, certified.secret(t, secretKey).Data["tls.crt"])
		if err := certified.client.Delete(t.Context(), certified.secret(t, secretKey)); err != nil {
			t.Fatal(err)
		}
		if err := certified.client.Patch(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: publishedKey.Namespace, Name: publishedKey.Name}},
			client.RawPatch("application/merge-patch+json", []byte(`{"data":{"ca.crt":"nonsense"}}`))); err != nil {
			t.Fatal(err)
		}
		certified.wantShown(t, "both are as they were", func(shown *x509.Certificate) bool { return shown.SerialNumber.Cmp(before.SerialNumber) != 0 })
	})
}

// wantOperatorConfined tries with the operator's identity to change what is not its own.
func (certified *certified) wantOperatorConfined(t *testing.T) {
	t.Helper()
	as := rest.CopyConfig(certified.environment.Config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + deployed.Namespace + ":trireme-operator", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	cluster, err := kubernetes.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: deployed.Namespace, Name: "another"}}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: deployed.Namespace, Name: "another"}},
	} {
		if err := certified.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cluster.CoreV1().Secrets(deployed.Namespace).Update(t.Context(), certified.secret(t, client.ObjectKey{Namespace: deployed.Namespace, Name: "another"}), metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another Secret: %v", err)
	}
	if _, err := cluster.CoreV1().ConfigMaps(deployed.Namespace).Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "another"}}, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another ConfigMap: %v", err)
	}
	if _, err := cluster.CoreV1().ConfigMaps("default").Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "trireme-ca"}}, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a ConfigMap of another namespace: %v", err)
	}
}

// A certificate is replaced before it expires, and when the CA is another. The server
// shows the new one without a restart.
func TestServerCertificateIsRenewed(t *testing.T) {
	certified := startCertified(t)
	// The server may go on showing the first one until the second is mounted, so neither
	// is what it is waited for.
	first := leaf(t, certified.secret(t, secretKey).Data["tls.crt"])
	second := certified.expiring(t)
	certified.wantShown(t, "the certificate is renewed", func(shown *x509.Certificate) bool { return !shown.Equal(first) && !shown.Equal(second) })
	previous := certified.published(t)
	certified.replaceAuthority(t)
	certified.wantShown(t, "the certificate is of the new CA", func(*x509.Certificate) bool { return true })
	if _, err := certified.verify(t, previous, issuedNames[2]); err == nil {
		t.Error("the certificate is still one of the CA before")
	}
	if len(certified.server.ended) > 0 {
		t.Error("the server was restarted")
	}
}

// The administrator's certificate stays, whatever the operator has to do, until the
// administrator removes it.
func TestAdministratorsCertificateWins(t *testing.T) {
	certified := startCertified(t)
	certificate, key, err := cert.GenerateSelfSignedCertKey("trireme-server.trireme-system.svc", nil, []string{"train.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	// As the guide says: kubectl create secret tls --dry-run=client -o yaml | kubectl apply --server-side --force-conflicts -f -
	give := func(authority []byte) {
		t.Helper()
		given := &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": authority},
		}
		//nolint:staticcheck // A whole Secret is what kubectl sends.
		if err := certified.client.Patch(t.Context(), given, client.Apply, client.ForceOwnership, client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
	}
	authority := certified.published(t)
	give(certificate)
	eventually.Succeeds(t, "the administrator's CA is published", func() error {
		if certified.published(t) != string(certificate) {
			return errors.New("not yet")
		}
		return nil
	})
	certified.wantShown(t, "the administrator's certificate is shown", func(shown *x509.Certificate) bool { return shown.Equal(leaf(t, certificate)) })
	if _, err := certified.verify(t, authority, issuedNames[2]); err == nil {
		t.Error("the server still shows what the operator issued")
	}
	// Without a CA in the Secret the operator's own is published; that it is another one
	// then shows that the operator has looked at the Secret since.
	give(nil)
	eventually.Succeeds(t, "the operator's CA is published", func() error {
		if certified.published(t) != authority {
			return errors.New("not yet")
		}
		return nil
	})
	certified.replaceAuthority(t)
	if given := certified.secret(t, secretKey); string(given.Data["tls.crt"]) != string(certificate) || string(given.Data["tls.key"]) != string(key) {
		t.Error("the administrator's certificate was replaced")
	}
	if err := certified.client.Delete(t.Context(), certified.secret(t, secretKey)); err != nil {
		t.Fatal(err)
	}
	certified.wantShown(t, "the operator issues again", func(*x509.Certificate) bool { return true })
	if got := askWith(t, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(t, certified.published(t)), ServerName: "localhost"}}},
		http.MethodGet, certified.server.url+"/healthz", "", nil); got.code != http.StatusOK {
		t.Errorf("%d %s", got.code, got.body)
	}
}

func pool(t *testing.T, authority string) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(authority)) {
		t.Fatalf("no CA: %q", authority)
	}
	return roots
}
