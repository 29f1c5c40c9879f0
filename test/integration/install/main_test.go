// SPDX-License-Identifier: Apache-2.0

// Package install tests what the chart creates and refuses, and what its Jobs do, on a
// real API server. That what it installs works is tested on a local cluster.
package install

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/operator/setup"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
)

const repository = "../../.."

// cluster is an API server of somebody else's: nothing of ours is in it.
type cluster struct {
	environment *envtest.Environment
	client      client.Client
	kubeconfig  string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	environment := controlplane.Start(t, nil)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v2beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	made, err := client.New(environment.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	cluster := &cluster{environment: environment, client: made}
	cluster.kubeconfig = cluster.identity(t, "admin", "system:masters")
	return cluster
}

// identity is the kubeconfig of somebody.
func (cluster *cluster) identity(t *testing.T, name string, groups ...string) string {
	t.Helper()
	user, err := cluster.environment.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs a program of the repository against the cluster, and returns all that
// it prints.
func (cluster *cluster) run(t *testing.T, settings []string, program string, arguments ...string) (string, error) {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Dir = repository
	command.Env = append(os.Environ(), "KUBECONFIG="+cluster.kubeconfig, "PATH="+cluster.environment.BinaryAssetsDirectory+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
	command.Env = append(command.Env, settings...)
	output, err := command.CombinedOutput()
	return string(output), err
}

func (cluster *cluster) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := cluster.client.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
	t.Cleanup(func() { _ = cluster.client.Delete(context.Background(), object) })
}

// deployment is one of somebody else's operators.
func deployment(container corev1.Container, replicas int32) *appsv1.Deployment {
	container.Name = "operator"
	labels := map[string]string{"app": "theirs"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "theirs"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy", Image: "registry.example/proxy:1"}, container}},
			},
		},
	}
}

// helm runs helm for the release, without hooks: no pod runs on this cluster.
func (cluster *cluster) helm(t *testing.T, action string, arguments ...string) (string, error) {
	t.Helper()
	return cluster.run(t, nil, "bin/helm", append([]string{action, "trireme", "charts/trireme", "--namespace", "trireme-system", "--create-namespace", "--no-hooks"}, arguments...)...)
}

// setup does what the chart's Jobs do.
func (cluster *cluster) setup(t *testing.T, output io.Writer) setup.Setup {
	t.Helper()
	return setup.Setup{Client: cluster.client, Output: output, Pause: 10 * time.Millisecond, Manage: job.ShareAll}
}
