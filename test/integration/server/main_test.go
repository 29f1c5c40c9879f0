// SPDX-License-Identifier: Apache-2.0

// Package server runs the server's program as it is deployed, with its own role and
// nothing else, against a real API server: who gets in, what they may do, and what
// is left of it in the audit.
package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/shared"
)

// serverProgram and odhProgram are what is under test.
var serverProgram, odhProgram string

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	folder, err := os.MkdirTemp("", "trireme-server-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	serverProgram, odhProgram = filepath.Join(folder, "server"), filepath.Join(folder, "odh")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", folder, "./cmd/server", "./cmd/odh")
	build.Dir = deployed.Repository()
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, output)
		return 1
	}
	defer deployed.RemoveProgram()
	return sharedCluster.End(m.Run())
}

// cluster is an API server that knows the job APIs and the roles. Nobody works on the
// jobs.
type cluster struct {
	environment *envtest.Environment
	client      client.WithWatch
	typed       kubernetes.Interface
	// server is what the server is: a service account with the role of the chart.
	server           *rest.Config
	serverKubeconfig []byte
}

// One API server serves all tests of this package that do not need their own: each
// test has its own namespaces.
var sharedCluster = shared.Thing[*cluster]{Make: func(t testing.TB) *cluster { return startCluster(t) }}

func startCluster(t testing.TB, options ...func(*envtest.Environment)) *cluster {
	t.Helper()
	environment := &envtest.Environment{CRDDirectoryPaths: []string{deployed.CRDs()}}
	for _, option := range options {
		option(environment)
	}
	controlplane.Start(t, environment)
	config := rest.CopyConfig(environment.Config)
	config.QPS = -1
	made, err := connection.NewClientFactory().Client(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &cluster{environment: environment, client: made, typed: typed}
	cluster.create(t, deployed.UserRoles(t))
	// With the history, the server has one more permission.
	cluster.create(t, deployed.ManifestsWith(t, "complete", "ClusterRole*/trireme-server", "ClusterRole*/trireme-history"))
	user, err := environment.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + deployed.Namespace + ":trireme-server",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + deployed.Namespace, "system:authenticated"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cluster.serverKubeconfig, err = user.KubeConfig(); err != nil {
		t.Fatal(err)
	}
	cluster.server = user.Config()
	return cluster
}

// create creates what is in a file.
func (cluster *cluster) create(t testing.TB, documents []*unstructured.Unstructured) {
	t.Helper()
	anything, err := client.New(cluster.environment.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range documents {
		if err := anything.Create(t.Context(), document); err != nil {
			t.Fatalf("create %s %s: %v", document.GetKind(), document.GetName(), err)
		}
	}
}

// person is somebody who may work with jobs in a namespace of their own, and nowhere
// else.
type person struct {
	name, namespace, token string
}

// user is what the cluster calls the person.
func (person *person) user() string {
	return "system:serviceaccount:" + person.namespace + ":" + person.name
}

// person makes one, with a namespace.
func (cluster *cluster) person(t testing.TB, name string) *person {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	if err := cluster.client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	made := &person{name: name, namespace: namespace.Name}
	objects := []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: name}}}
	for _, role := range []string{"mpijob-user", "trainjob-editor"} {
		objects = append(objects, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: name + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace.Name, Name: name}},
		})
	}
	for _, object := range objects {
		if err := cluster.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	made.token = cluster.token(t, made)
	// Both the API server and ours learn of rights a moment later, and ours remembers a no.
	for _, resource := range []string{"mpijobs", "trainjobs"} {
		eventually.Succeeds(t, name+" may list "+resource, func() error {
			review, err := cluster.typed.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: made.user(), ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: made.namespace, Verb: "list", Group: "kubeflow.org", Resource: resource},
			}}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("not yet: %s", review.Status.Reason)
			}
			return err
		})
	}
	return made
}

// token is a new one for a person.
func (cluster *cluster) token(t testing.TB, person *person) string {
	t.Helper()
	request, err := cluster.typed.CoreV1().ServiceAccounts(person.namespace).CreateToken(t.Context(), person.name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// revoke makes every token of a person worthless.
func (cluster *cluster) revoke(t testing.TB, person *person) {
	t.Helper()
	if err := cluster.client.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: person.namespace, Name: person.name}}); err != nil {
		t.Fatal(err)
	}
}

// program is a server that runs.
type program struct {
	// url is where it serves; probes where it tells of its health.
	url, probes string
	audit, log  *deployed.Lines
	command     *exec.Cmd
	ended       chan error
	end         sync.Once
}

// startServer runs the server's program with the role that it is deployed with, and
// waits until it is ready. It ends with the test.
func (cluster *cluster) startServer(t testing.TB, arguments ...string) *program {
	t.Helper()
	started := &program{
		url: fmt.Sprintf("https://127.0.0.1:%d", deployed.FreePort(t)), probes: fmt.Sprintf("http://127.0.0.1:%d", deployed.FreePort(t)),
		audit: &deployed.Lines{}, log: &deployed.Lines{}, ended: make(chan error, 1),
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, cluster.serverKubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	started.command = exec.Command(serverProgram, append([]string{
		"--address", started.url[len("https://"):], "--probe-address", started.probes[len("http://"):], "--operator-namespace", deployed.Namespace, "--grace", "100ms",
	}, arguments...)...)
	started.command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	started.command.Stdout, started.command.Stderr = started.audit, started.log
	if err := started.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { started.ended <- started.command.Wait() }()
	t.Cleanup(func() { started.stop(t) })
	eventually.Succeeds(t, "the server is ready", func() error {
		if len(started.ended) > 0 {
			t.Fatalf("the server ended while it was waited for:\n%s", started.log)
		}
		response, err := insecure.Get(started.probes + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != 200 {
			return fmt.Errorf("%s\n%s", response.Status, started.log)
		}
		return nil
	})
	return started
}

// stop ends the server as a kubelet does, and fails the test if it does not end well.
func (program *program) stop(t testing.TB) {
	t.Helper()
	program.end.Do(func() {
		_ = program.command.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-program.ended:
			if err != nil {
				t.Errorf("the server ended with %v:\n%s", err, program.log)
			}
		case <-time.After(30 * time.Second):
			_ = program.command.Process.Kill()
			t.Error("the server does not end")
		}
	})
}
