// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

const (
	// repository, as seen from the module's folder, where `make` starts the program.
	repository = ".."
	image      = "trireme.local/openmpi:4"
	agentImage = "trireme.local/mpi-agent:dev"
	peerImage  = "trireme.local/mpi-operator:bench"
)

// Namespaces: our jobs run under PodSecurity's strictest level; OpenSSH needs root,
// and Trireme has no say where its pods are.
const (
	restricted = "bench"
	privileged = "bench-root"
)

// cluster is the local cluster, with both operators on it.
type cluster struct {
	client.WithWatch
	core *kubernetes.Clientset
	// fakeNodes it has.
	fakeNodes int
}

// shell runs a line in the repository's folder and returns all that it prints.
func shell(ctx context.Context, line string) (string, error) {
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	command.Dir = repository
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", line, err, output)
	}
	return string(output), err
}

// keepsCluster: BENCH_CLUSTER=keep takes the cluster that the environment names as
// it is, and leaves it.
func keepsCluster() bool { return os.Getenv("BENCH_CLUSTER") == "keep" }

// prepareCluster makes a cluster with both operators and all images.
func prepareCluster(ctx context.Context) (*cluster, error) {
	lines := []string{
		"bin/cluster up --fake-nodes 0", "bin/cluster image mpi openmpi4 digits", "make --no-print-directory install bin/mpi-agent",
		"bin/cluster image load bin/mpi-agent --as " + agentImage, "bin/cluster image load bin/peers/mpi-operator --as " + peerImage,
	}
	if !keepsCluster() {
		for name, value := range map[string]string{
			"TRIREME_CLUSTER_NAME": "trireme-bench", "TRIREME_CLUSTER_NETWORK": "10.194.0.0/16", "TRIREME_CLUSTER_DATA": "", "TRIREME_CLUSTER_RUN": "",
		} {
			if err := os.Setenv(name, value); err != nil {
				return nil, err
			}
		}
		lines = append([]string{"bin/cluster reset --images"}, lines...)
	}
	if err := os.Unsetenv("KUBECONFIG"); err != nil { // Of another cluster.
		return nil, err
	}
	for _, line := range lines {
		progress("%s", line)
		if _, err := shell(ctx, line); err != nil {
			return nil, err
		}
	}
	cluster, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	return cluster, errors.Join(cluster.makeNamespaces(ctx), cluster.installPeer(ctx))
}

func connect(ctx context.Context) (*cluster, error) {
	path, err := shell(ctx, `eval "$(bin/cluster env)" && printf %s "$KUBECONFIG"`)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // The client's own limit would be measured.
	config.WarningHandler = rest.NoWarnings{}
	scheme := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, v2alpha1.AddToScheme, v2beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfig(config)
	return &cluster{WithWatch: api, core: core}, err
}

// leave leaves the machine as it was.
func (cluster *cluster) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if !keepsCluster() {
		_, err := shell(ctx, "bin/cluster reset --images")
		return err
	}
	// Operator first: without it jobs would keep their finalizers.
	return errors.Join(cluster.choose(ctx, trireme), cluster.deleteNamespaces(ctx))
}

func (cluster *cluster) makeNamespaces(ctx context.Context) error {
	for name, labels := range map[string]map[string]string{
		restricted: {"pod-security.kubernetes.io/enforce": "restricted"},
		privileged: {"pod-security.kubernetes.io/enforce": "privileged", "training.kubeflow.org/admission": "disabled"},
	} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if err := cluster.make(ctx, namespace); err != nil {
			return err
		}
		if err := until(ctx, "namespace "+name+" gets its service account", func() (bool, error) {
			err := cluster.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
			return err == nil, client.IgnoreNotFound(err)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (cluster *cluster) deleteNamespaces(ctx context.Context) error {
	for _, name := range []string{restricted, privileged} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := until(ctx, "namespace "+name+" is gone", func() (bool, error) {
			err := cluster.Delete(ctx, namespace)
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// make creates objects that may be there from an earlier run.
func (cluster *cluster) make(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		if err := client.IgnoreAlreadyExists(cluster.Create(ctx, object)); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// simulateNodes makes the cluster have this many simulated nodes.
func (cluster *cluster) simulateNodes(ctx context.Context, count int) error {
	if cluster.fakeNodes == count {
		return nil
	}
	cluster.fakeNodes = count
	_, err := shell(ctx, fmt.Sprintf("bin/cluster up --fake-nodes %d --fake-node-gpus 8", count))
	return err
}

// until asks until something holds, for two minutes.
func until(ctx context.Context, what string, holds func() (bool, error)) error {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		done, err := holds()
		if done && err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("%s: not after two minutes", what), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func describeMachine(ctx context.Context) map[string]string {
	facts := map[string]string{"cores": fmt.Sprint(runtime.NumCPU()), "load before": loadAverage(), "limits of kube-controller-manager": "QPS 300, burst 600 (the local cluster's own)"}
	for name, line := range map[string]string{
		"processor": "sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1", "kernel": "uname -r", "memory": "sed -n 's/^MemTotal: *//p' /proc/meminfo",
		"Kubernetes": "bin/cluster kubectl version -o json | sed -n '/serverVersion/,$s/.*\"gitVersion\": \"\\(.*\\)\".*/\\1/p'", "Trireme": "git rev-parse --short HEAD",
	} {
		if output, err := shell(ctx, line); err == nil {
			facts[name] = string(bytes.TrimSpace([]byte(output)))
		}
	}
	facts["mpi-operator"] = "v0.8.2, QPS and burst 2000, 16 threads"
	return facts
}

func loadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(content))[:3], " ")
}
