// SPDX-License-Identifier: Apache-2.0

//go:build web

package server

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/web"
)

// pageServer is a server with the dashboard, with a certificate that scripts can trust.
type pageServer struct {
	*program
	certificate []byte
}

// startPageServer starts one. What it serves is what make web has built last.
func (cluster *cluster) startPageServer(t testing.TB, arguments ...string) *pageServer {
	t.Helper()
	if _, built := web.Page(); !built {
		t.Fatal("the server was built without the dashboard: run make web")
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"--tls-cert-file", deployed.Write(t, "tls.crt", certificate), "--tls-key-file", deployed.Write(t, "tls.key", key)}
	return &pageServer{program: cluster.startServer(t, append(files, arguments...)...), certificate: certificate}
}

// browse runs a script of web/browser, with a browser, and returns what it prints to stdout.
func (cluster *cluster) browse(t testing.TB, server *pageServer, script string, variables ...string) string {
	t.Helper()
	folder := filepath.Join(deployed.Repository(), "web")
	if _, err := exec.LookPath("chromium"); err != nil && os.Getenv("CHROMIUM") == "" {
		t.Fatal("there is no chromium: run tools/apt-install chromium, or set CHROMIUM")
	}
	authorities := append(append([]byte{}, server.certificate...), cluster.environment.Config.CAData...)
	command := exec.CommandContext(t.Context(), filepath.Join(folder, "npm"), "run", "--silent", script)
	command.Dir = folder
	command.Env = append(os.Environ(), append(variables, "SERVER="+server.url, "NODE_EXTRA_CA_CERTS="+deployed.Write(t, "authorities.crt", authorities))...)
	var output, failures strings.Builder
	command.Stdout, command.Stderr = &output, &failures
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s\nserver:\n%s", script, err, &output, &failures, server.log)
	}
	return output.String()
}

// administrator is the token of a user who may do everything.
func (cluster *cluster) administrator(t testing.TB) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "administrator"}}
	if err := cluster.client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.typed.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := cluster.typed.CoreV1().ServiceAccounts(account.Namespace).CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}
