// SPDX-License-Identifier: Apache-2.0

//go:build web

package server

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

const (
	oidcUser     = "ada@example.com"
	oidcPassword = "correct horse battery staple"
	oidcSecret   = "secret-of-the-client"
	// oidcPrefix is what the API server puts before the names of the issuer's users.
	oidcPrefix = "oidc:"
)

// A user signs in at an OIDC issuer, through oauth2-proxy, and works with the permissions that
// the API server grants to the issuer's user. All parts are the real ones.
func TestPageBehindOAuth2Proxy(t *testing.T) {
	if os.Getenv("THOROUGH") == "" {
		t.Skip("it builds dex and oauth2-proxy: make test-all runs it")
	}
	programs := buildOIDC(t)
	issuer := newDex(t)
	proxy := fmt.Sprintf("http://127.0.0.1:%d", deployed.FreePort(t))
	issuer.start(t, programs, proxy)
	cluster := startCluster(t, issuer.trustedBy)
	server := cluster.startPageServer(t)
	startOAuth2Proxy(t, programs, proxy, issuer, server)

	const namespace = "team-ada"
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ada"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mpijob-user"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: oidcPrefix + oidcUser}},
		},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-bob"}},
		player.MPIJob("mine", func(job *v2beta1.MPIJob) { job.Namespace = namespace }),
		player.MPIJob("secret", func(job *v2beta1.MPIJob) { job.Namespace = "team-bob" }),
	}
	for _, object := range objects {
		if err := cluster.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	cluster.browse(t, server, "test-oidc", "PROXY="+proxy, "ISSUER="+issuer.url, "NAMESPACE="+namespace,
		"USER_NAME="+oidcPrefix+oidcUser, "LOGIN="+oidcUser, "PASSWORD="+oidcPassword)

	lines := server.audit.About(t, "mine")
	if len(lines) == 0 {
		t.Fatalf("nothing in the audit:\n%s", server.audit)
	}
	for _, line := range lines {
		if line["user"] != oidcPrefix+oidcUser || line["result"] != "done" {
			t.Errorf("the audit says %v", line)
		}
	}
}

// buildOIDC builds dex and oauth2-proxy, each from a module of its own, and returns their folder.
func buildOIDC(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, program := range map[string]string{"dex": ".", "oauth2-proxy": "github.com/oauth2-proxy/oauth2-proxy/v7"} {
		module := filepath.Join(deployed.Repository(), "test/integration/server/oidc", name)
		build := exec.Command("go", "build", "-C", module, "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", filepath.Join(folder, name), program)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, output)
		}
	}
	return folder
}

// dex is an issuer with one user.
type dex struct {
	port             int
	url              string
	certificate, key string
}

func newDex(t *testing.T) *dex {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	port := deployed.FreePort(t)
	return &dex{
		port: port, url: fmt.Sprintf("https://127.0.0.1:%d/dex", port),
		certificate: deployed.Write(t, "issuer.crt", certificate), key: deployed.Write(t, "issuer.key", key),
	}
}

// trustedBy makes an API server accept the tokens of the issuer.
func (issuer *dex) trustedBy(environment *envtest.Environment) {
	environment.ControlPlane.GetAPIServer().Configure().
		Set("oidc-issuer-url", issuer.url).Set("oidc-client-id", "trireme").Set("oidc-ca-file", issuer.certificate).
		Set("oidc-username-claim", "email").Set("oidc-username-prefix", oidcPrefix)
}

func (issuer *dex) start(t *testing.T, programs, proxy string) {
	t.Helper()
	command := exec.Command(filepath.Join(programs, "dex"), "--address", fmt.Sprintf("127.0.0.1:%d", issuer.port), "--issuer", issuer.url,
		"--tls-cert", issuer.certificate, "--tls-key", issuer.key, "--redirect-url", proxy+"/oauth2/callback", "--user", oidcUser,
		// As short as a test can wait for: the session of the proxy lasts longer than a token.
		"--token-validity", "1m")
	command.Env = append(os.Environ(), "DEX_PASSWORD="+oidcPassword, "DEX_CLIENT_SECRET="+oidcSecret)
	startBeside(t, command, issuer.url+"/.well-known/openid-configuration")
}

// startOAuth2Proxy starts it with the options of docs/admin-guide/server.md, without TLS of its own.
func startOAuth2Proxy(t *testing.T, programs, proxy string, issuer *dex, server *pageServer) {
	t.Helper()
	command := exec.Command(filepath.Join(programs, "oauth2-proxy"),
		"--provider=oidc", "--oidc-issuer-url="+issuer.url, "--client-id=trireme", "--client-secret-file="+deployed.Write(t, "client-secret", []byte(oidcSecret)),
		"--scope=openid email offline_access", "--email-domain=*", "--upstream="+server.url,
		"--pass-authorization-header", "--pass-host-header", "--api-route=^/api/", "--skip-provider-button",
		"--cookie-secret=0123456789abcdef0123456789abcdef", "--cookie-samesite=lax", "--cookie-refresh=30s",
		"--http-address="+proxy, "--redirect-url="+proxy+"/oauth2/callback", "--cookie-secure=false")
	authorities := append(append([]byte{}, server.certificate...), deployed.Read(t, issuer.certificate)...)
	command.Env = append(os.Environ(), "SSL_CERT_FILE="+deployed.Write(t, "authorities.crt", authorities))
	startBeside(t, command, proxy+"/ping")
}

// startBeside starts a program that ends with the test, and waits until it answers.
func startBeside(t *testing.T, command *exec.Cmd, url string) {
	t.Helper()
	log := &deployed.Lines{}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if _ = command.Wait(); t.Failed() {
			t.Logf("%s wrote:\n%s", filepath.Base(command.Path), log)
		}
	})
	eventually.Succeeds(t, filepath.Base(command.Path)+" answers", func() error {
		response, err := insecure.Get(url)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(log.String()))
		}
		return nil
	})
}
