// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/internal/operator"
)

// managerLimits are what kube-controller-manager may ask of the API server: it makes
// launchers and all pods of TrainJobs, and shall not be what is measured.
var managerLimits = []string{"--kube-api-qps=2000", "--kube-api-burst=2000", "--concurrent-job-syncs=16"}

// startTimeout is what etcd and API server may take on a machine that does other things
// besides.
const startTimeout = 2 * time.Minute

// A cluster is an API server with its etcd, new for each contestant, and the
// controllers of one contestant.
type cluster struct {
	environment *envtest.Environment
	// connection is the benchmark's own, whose requests are counted.
	connection *rest.Config
	own        *requestCounter
	client     client.Client
	clientset  *kubernetes.Clientset
	// directory has certificates, logs and the administrator's kubeconfig.
	directory   string
	controllers []*process
	// manager is kube-controller-manager, nil where there is none.
	manager *process
}

// place is where this repository, and what is built of it, is found.
type place struct {
	repository string
	// kubernetes is the folder of the cluster tool's build.
	kubernetes string
	// programs is the folder of what is built of this repository and of the peers.
	programs string
	// keep is where logs go, for those who want to read them.
	keep string
}

func findPlace() (place, error) {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/trireme-mpi/trireme").Output()
	if err != nil {
		return place{}, fmt.Errorf("find the repository: %w", err)
	}
	found := place{repository: strings.TrimSpace(string(output))}
	found.programs = filepath.Join(found.repository, "bin")
	command := exec.Command(filepath.Join(found.programs, "cluster"), "assets")
	command.Stderr = os.Stderr
	if output, err = command.Output(); err != nil {
		return place{}, fmt.Errorf("build the API server: %w", err)
	}
	found.kubernetes = strings.TrimSpace(string(output))
	found.keep = filepath.Join(found.programs, "bench/logs")
	return found, os.MkdirAll(found.keep, 0o755)
}

// program is one that `make bench` built.
func (place place) program(name string) string {
	return filepath.Join(place.programs, name)
}

// startCluster starts etcd and an API server with the defaults of Kubernetes, and
// what a contestant has to have installed.
func startCluster(place place, contestant contestant) (made *cluster, err error) {
	directory, err := os.MkdirTemp("", "trireme-bench-")
	if err != nil {
		return nil, err
	}
	made = &cluster{directory: directory, own: &requestCounter{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, made.stop())
		}
	}()
	made.environment = &envtest.Environment{
		BinaryAssetsDirectory:    place.kubernetes,
		CRDInstallOptions:        envtest.CRDInstallOptions{Paths: contestant.crds(place), ErrorIfPathMissing: true, MaxTime: startTimeout},
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  startTimeout,
	}
	flags := made.environment.ControlPlane.GetAPIServer().Configure()
	// As every cluster has it: no pod without a service account.
	flags.Disable("disable-admission-plugins")
	if _, err = made.environment.Start(); err != nil {
		return made, fmt.Errorf("start the API server: %w", err)
	}
	if err = os.WriteFile(made.kubeconfig(), made.environment.KubeConfig, 0o600); err != nil {
		return made, err
	}
	made.connection = unlimited(made.environment.Config)
	made.connection.Wrap(made.own.wrap)
	if made.client, err = client.New(made.connection, client.Options{Scheme: operator.Scheme()}); err != nil {
		return made, err
	}
	if made.clientset, err = kubernetes.NewForConfig(made.connection); err != nil {
		return made, err
	}
	return made, nil
}

// unlimited is a connection that only the API server slows down.
func unlimited(connection *rest.Config) *rest.Config {
	connection = rest.CopyConfig(connection)
	connection.QPS = -1
	connection.WarningHandlerWithContext = rest.NoWarnings{}
	return connection
}

func (cluster *cluster) kubeconfig() string { return filepath.Join(cluster.directory, "kubeconfig") }

// stop ends everything, and keeps nothing.
func (cluster *cluster) stop() error {
	for _, controller := range cluster.controllers {
		controller.stop()
	}
	if cluster.manager != nil {
		cluster.manager.stop()
	}
	var err error
	if cluster.environment != nil {
		err = cluster.environment.Stop()
	}
	return errors.Join(err, os.RemoveAll(cluster.directory))
}

// startManager runs kube-controller-manager, with all of its controllers.
func (cluster *cluster) startManager(place place) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	arguments := append([]string{
		"--kubeconfig=" + cluster.kubeconfig(), "--leader-elect=false", "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + filepath.Join(cluster.directory, "manager"),
		"--service-account-private-key-file=" + filepath.Join(cluster.environment.ControlPlane.GetAPIServer().CertDir, "sa-signer.key"),
	}, managerLimits...)
	cluster.manager, err = startProcess(place.keep, "kube-controller-manager", filepath.Join(place.kubernetes, "kube-controller-manager"), nil, arguments...)
	return err
}

// startController runs a contestant's program, and waits until it says that it is
// ready.
func (cluster *cluster) startController(ctx context.Context, place place, name, path, ready string, environment []string, arguments ...string) error {
	started, err := startProcess(place.keep, name, path, append(environment, "KUBECONFIG="+cluster.kubeconfig()), arguments...)
	if err != nil {
		return err
	}
	cluster.controllers = append(cluster.controllers, started)
	return started.untilReady(ctx, ready)
}

// createNamespace makes a namespace whose pods have a service account.
func (cluster *cluster) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
	for _, object := range []client.Object{namespace, account} {
		if err := cluster.client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %T %s: %w", object, name, err)
		}
	}
	return nil
}

// usage is what the contestant's controllers have used so far, together.
func (cluster *cluster) usage() (usage, error) {
	var sum usage
	for _, controller := range cluster.controllers {
		used, err := controller.usage()
		if err != nil {
			return usage{}, fmt.Errorf("%s: %w: %s", controller.name, err, controller.lastWords())
		}
		sum.cpu, sum.memory, sum.peak = sum.cpu+used.cpu, sum.memory+used.memory, sum.peak+used.peak
	}
	return sum, nil
}

// kubernetesCPU is the seconds that all other programs of ours have used: API server,
// etcd and kube-controller-manager.
func (cluster *cluster) kubernetesCPU() (float64, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, folder := range folders {
		parent, used, err := readStat(folder)
		isController := slices.ContainsFunc(cluster.controllers, func(process *process) bool { return process.folder() == folder })
		// Other processes come and go.
		if err == nil && parent == os.Getpid() && !isController {
			sum += used
		}
	}
	return sum, nil
}
