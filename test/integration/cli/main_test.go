// SPDX-License-Identifier: Apache-2.0

// Package cli runs odh as people do, as a program against a real API server:
// what it says, which code it exits with, and what it left behind.
package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
)

const repository = "../../.."

// odh is the program under test.
var odh string

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	folder, err := os.MkdirTemp("", "odh-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	odh = filepath.Join(folder, "odh")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", odh, "./cmd/odh")
	build.Dir = repository
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build odh: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// cluster is an API server that knows the job APIs. Nobody works on the jobs.
type cluster struct {
	environment *envtest.Environment
	client      client.Client
	kubeconfig  string
}

func startCluster(t testing.TB, crds ...string) *cluster {
	t.Helper()
	if len(crds) == 0 {
		crds = []string{filepath.Join(repository, "charts/trireme/crds")}
	}
	environment := controlplane.Start(t, &envtest.Environment{CRDDirectoryPaths: crds})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v2alpha1.AddToScheme, v2beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := *environment.Config
	config.QPS = -1
	made, err := client.New(&config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	cluster := &cluster{environment: environment, client: made}
	cluster.kubeconfig = cluster.identity(t, "admin", "system:masters")
	return cluster
}

// identity is the kubeconfig of somebody.
func (cluster *cluster) identity(t testing.TB, name string, groups ...string) string {
	t.Helper()
	user, err := cluster.environment.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "kubeconfig", string(kubeconfig))
}

func write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// outcome is what a command left to see.
type outcome struct {
	stdout, stderr string
	code           int
}

// run runs odh as somebody.
func run(t testing.TB, kubeconfig, stdin string, arguments ...string) outcome {
	t.Helper()
	return runProgram(t, odh, kubeconfig, stdin, arguments...)
}

func runProgram(t testing.TB, program, kubeconfig, stdin string, arguments ...string) outcome {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir())
	command.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	return outcome{stdout: stdout.String(), stderr: stderr.String(), code: command.ProcessState.ExitCode()}
}

// namespace makes one for a test.
func (cluster *cluster) namespace(t testing.TB) string {
	t.Helper()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-"}}
	if err := cluster.client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	return made.Name
}

// allow lets somebody do things with jobs in a namespace.
func (cluster *cluster) allow(t testing.TB, user, namespace string, verbs ...string) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"kubeflow.org"}, Resources: []string{"trainjobs", "mpijobs"}, Verbs: verbs},
	}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}}
	for _, object := range []client.Object{role, binding} {
		if err := cluster.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// jobs counts the jobs of a namespace.
func (cluster *cluster) jobs(t testing.TB, namespace string) int {
	t.Helper()
	var trainJobs v2alpha1.TrainJobList
	var mpiJobs v2beta1.MPIJobList
	for _, list := range []client.ObjectList{&trainJobs, &mpiJobs} {
		if err := cluster.client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	return len(trainJobs.Items) + len(mpiJobs.Items)
}

// trainJob is a job that admission would take; nothing runs it here.
func trainJob(namespace, name string) *v2alpha1.TrainJob {
	return &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v2alpha1.TrainJobSpec{
		RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "mpi-openmpi-cpu"},
		Trainer:    v2alpha1.Trainer{Image: "quay.io/team/train:7", NumNodes: new(int32(2))},
	}}
}
