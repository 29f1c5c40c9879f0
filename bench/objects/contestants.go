// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/engine/config"
)

// Names of the contestants.
const (
	bareMPIJob       = "bare client (MPIJob)"
	triremeOfMPI     = "Trireme MPIJob"
	mpiOperator      = "mpi-operator"
	mpiOperatorTuned = "mpi-operator tuned"
	bareTrainJob     = "bare client (TrainJob)"
	triremeOfTrain   = "Trireme TrainJob"
	triremeBeside    = "Trireme TrainJob beside JobSet"
	trainer          = "Trainer"
)

// A contestant makes pods of jobs.
type contestant struct {
	name string
	kind jobKind
	// crds are the files and folders of the kinds that it serves.
	crds func(place) []string
	// start runs its controllers.
	start func(context.Context, place, *cluster) error
	// recorded is the contestant whose objects a bare client makes, if this is one.
	recorded string
	// slow is one that waits by itself most of the time: it gets the small sizes only.
	slow bool
}

// contestants are all of them, in the order of the table.
func contestants() []contestant {
	return []contestant{
		{name: bareMPIJob, kind: mpiJob, crds: triremeCRDs, start: startNothing, recorded: triremeOfMPI},
		{name: triremeOfMPI, kind: mpiJob, crds: triremeCRDs, start: startTrireme},
		{name: mpiOperator, kind: mpiJob, crds: mpiOperatorCRDs, start: startMPIOperator(), slow: true},
		{name: mpiOperatorTuned, kind: mpiJob, crds: mpiOperatorCRDs, start: startMPIOperator(
			"--kube-api-qps=2000", "--kube-api-burst=2000", "--threadiness=16", "--controller-queue-rate-limit=2000", "--controller-queue-burst=2000")},
		{name: bareTrainJob, kind: triremeTrainJob, crds: triremeWithJobSetCRDs, start: startNothing, recorded: triremeOfTrain},
		{name: triremeOfTrain, kind: triremeTrainJob, crds: triremeWithJobSetCRDs, start: startTriremeWithRuntime},
		{name: triremeBeside, kind: triremeTrainJob, crds: triremeWithJobSetCRDs, start: startTriremeBesideJobSet},
		{name: trainer, kind: trainerTrainJob, crds: trainerCRDs, start: startTrainer},
	}
}

func triremeCRDs(place place) []string {
	return []string{filepath.Join(place.repository, "charts/trireme/crds")}
}

func triremeWithJobSetCRDs(place place) []string { return append(triremeCRDs(place), jobSetCRD(place)) }

func jobSetCRD(place place) string { return filepath.Join(place.kubernetes, "jobset-crd.yaml") }

func mpiOperatorCRDs(place place) []string {
	return []string{filepath.Join(module(place, "mpi-operator", "github.com/kubeflow/mpi-operator"), "manifests/base/kubeflow.org_mpijobs.yaml")}
}

func trainerModule(place place) string {
	return module(place, "trainer", "github.com/kubeflow/trainer/v2")
}

func trainerCRDs(place place) []string {
	crds := filepath.Join(trainerModule(place), "manifests/base/crds")
	paths := []string{jobSetCRD(place)}
	for _, kind := range []string{"trainjobs", "trainingruntimes", "clustertrainingruntimes"} {
		paths = append(paths, filepath.Join(crds, "trainer.kubeflow.org_"+kind+".yaml"))
	}
	return paths
}

// module is the folder of a peer's source, from which it was built. What is not
// there is said by whoever reads it.
func module(place place, peer, path string) string {
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path)
	command.Dir = filepath.Join(place.repository, "bench/peers", peer)
	output, err := command.Output()
	if err != nil {
		return filepath.Join(command.Dir, "not-found")
	}
	return strings.TrimSpace(string(output))
}

func startNothing(context.Context, place, *cluster) error { return nil }

// startTrireme runs the operator with the configuration that it is shipped with, but
// for what a process outside of a pod needs, and the limits of sizes.
func startTrireme(ctx context.Context, place place, cluster *cluster) error {
	serving, err := cluster.installWebhooks(filepath.Join(place.repository, "config/manifests/kubernetes.yaml"))
	if err != nil {
		return err
	}
	const namespace = "trireme-system"
	if err := cluster.createNamespace(ctx, namespace); err != nil {
		return err
	}
	settings := config.Default()
	settings.Webhook.Port, settings.Webhook.CertificateDirectory, settings.Webhook.ManageCertificates = int32(serving.LocalServingPort), serving.LocalServingCertDir, false
	settings.Webhook.ConfigurationName = serving.ValidatingWebhooks[0].Name
	settings.Metrics.BindAddress = config.MetricsOff
	settings.ClusterDomain = "cluster.local"
	settings.Limits.MaxNodes, settings.Limits.MaxWorkers = largest, largest
	probes, err := freePort()
	if err != nil {
		return err
	}
	file, err := cluster.write("trireme.yaml", settings)
	if err != nil {
		return err
	}
	return cluster.startController(ctx, place, "trireme", place.program("operator"), fmt.Sprintf("http://localhost:%d/readyz", probes), nil,
		"--config", file, "--namespace", namespace, "--health-probe-bind-address", fmt.Sprintf("localhost:%d", probes))
}

// startTriremeBesideJobSet: JobSet's webhooks see every JobSet and every pod of one,
// although its controller leaves them alone.
func startTriremeBesideJobSet(ctx context.Context, place place, cluster *cluster) error {
	if err := startJobSet(ctx, place, cluster); err != nil {
		return err
	}
	return startTriremeWithRuntime(ctx, place, cluster)
}

// startTriremeWithRuntime needs nothing of JobSet but its CRD.
func startTriremeWithRuntime(ctx context.Context, place place, cluster *cluster) error {
	if err := startTrireme(ctx, place, cluster); err != nil {
		return err
	}
	return cluster.createManifest(ctx, triremeRuntime)
}

// startMPIOperator runs mpi-operator with its defaults, or what is said beyond them.
// Its health check has a port of its own choice.
func startMPIOperator(tuned ...string) func(context.Context, place, *cluster) error {
	return func(ctx context.Context, place place, cluster *cluster) error {
		const namespace = "mpi-operator"
		if err := cluster.createNamespace(ctx, namespace); err != nil {
			return err
		}
		return cluster.startController(ctx, place, "mpi-operator", place.program("peers/mpi-operator"), "http://localhost:8080/healthz", nil,
			append([]string{"-alsologtostderr", "--lock-namespace=" + namespace}, tuned...)...)
	}
}

// startJobSet runs JobSet with its webhooks: the same for Trireme and Trainer. Its
// limits are raised, as those of kube-controller-manager.
func startJobSet(ctx context.Context, place place, cluster *cluster) error {
	serving, err := cluster.installWebhooks(filepath.Join(place.kubernetes, "jobset-webhook.yaml"))
	if err != nil {
		return err
	}
	probes, err := freePort()
	if err != nil {
		return err
	}
	file, err := cluster.write("jobset.yaml", map[string]any{
		"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration",
		"leaderElection":         map[string]any{"leaderElect": false},
		"internalCertManagement": map[string]any{"enable": false},
		"webhook":                map[string]any{"port": serving.LocalServingPort, "certDir": serving.LocalServingCertDir},
		"metrics":                map[string]any{"bindAddress": "0"},
		"health":                 map[string]any{"healthProbeBindAddress": fmt.Sprintf("localhost:%d", probes)},
		"clientConnection":       map[string]any{"qps": jobSetQPS, "burst": jobSetQPS},
	})
	if err != nil {
		return err
	}
	return cluster.startController(ctx, place, "jobset", filepath.Join(place.kubernetes, "jobset"), fmt.Sprintf("http://localhost:%d/readyz", probes), nil,
		"--kubeconfig="+cluster.kubeconfig(), "--config="+file, "--zap-log-level=info")
}

// jobSetQPS is what JobSet may ask of the API server, for both who use it.
const jobSetQPS = 2000

// startTrainer runs Trainer with the configuration of its manifests, but for what a
// process outside of a pod needs.
func startTrainer(ctx context.Context, place place, cluster *cluster) error {
	if err := startJobSet(ctx, place, cluster); err != nil {
		return err
	}
	manifests := filepath.Join(trainerModule(place), "manifests/base")
	serving, err := cluster.installWebhooks(filepath.Join(manifests, "webhook/manifests.yaml"))
	if err != nil {
		return err
	}
	shipped, err := os.ReadFile(filepath.Join(manifests, "manager/controller_manager_config.yaml"))
	if err != nil {
		return err
	}
	settings := map[string]any{}
	if err := yaml.Unmarshal(shipped, &settings); err != nil {
		return err
	}
	probes, err := freePort()
	if err != nil {
		return err
	}
	settings["certManagement"] = map[string]any{"enable": false}
	settings["webhook"] = map[string]any{"port": serving.LocalServingPort, "host": serving.LocalServingHost}
	settings["metrics"] = map[string]any{"bindAddress": "0"}
	settings["health"] = map[string]any{"healthProbeBindAddress": fmt.Sprintf("localhost:%d", probes)}
	if election, has := settings["leaderElection"].(map[string]any); has {
		election["resourceNamespace"] = "default"
	}
	file, err := cluster.write("trainer.yaml", settings)
	if err != nil {
		return err
	}
	// It looks for its certificate where controller-runtime does if it is not told.
	temporary := filepath.Join(cluster.directory, "trainer")
	certificates := filepath.Join(temporary, "k8s-webhook-server/serving-certs")
	if err := os.MkdirAll(filepath.Dir(certificates), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(serving.LocalServingCertDir, certificates); err != nil {
		return err
	}
	err = cluster.startController(ctx, place, "trainer", place.program("peers/trainer"), fmt.Sprintf("http://localhost:%d/readyz", probes),
		[]string{"TMPDIR=" + temporary}, "--config="+file, "--zap-log-level=2")
	if err != nil {
		return err
	}
	return cluster.createManifest(ctx, trainerRuntime)
}

// installWebhooks installs the configurations of files, with a certificate for this
// machine.
func (cluster *cluster) installWebhooks(files ...string) (*envtest.WebhookInstallOptions, error) {
	options := &envtest.WebhookInstallOptions{Paths: files, MaxTime: startTimeout}
	if err := options.PrepWithoutInstalling(); err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	for _, configuration := range options.MutatingWebhooks {
		configuration.Name = unique(configuration.Name, files[0])
		for i := range configuration.Webhooks {
			reachHere(&configuration.Webhooks[i].ClientConfig, options)
		}
	}
	for _, configuration := range options.ValidatingWebhooks {
		configuration.Name = unique(configuration.Name, files[0])
		for i := range configuration.Webhooks {
			reachHere(&configuration.Webhooks[i].ClientConfig, options)
		}
	}
	if err := options.Install(cluster.connection); err != nil {
		return nil, fmt.Errorf("install %v: %w", files, err)
	}
	return options, nil
}

// reachHere is for webhooks without a path, which envtest leaves alone: the operator
// fills it in.
func reachHere(webhook *admissionregistrationv1.WebhookClientConfig, options *envtest.WebhookInstallOptions) {
	if webhook.Service != nil {
		webhook.URL = new(fmt.Sprintf("https://%s", net.JoinHostPort(options.LocalServingHost, strconv.Itoa(options.LocalServingPort))))
		webhook.Service = nil
	}
}

// unique: before kustomize renames them, the configurations of JobSet and of Trainer
// have the same names.
func unique(name, file string) string {
	return name + "-" + strings.TrimSuffix(filepath.Base(file), ".yaml")
}

// write puts settings into a file.
func (cluster *cluster) write(name string, settings any) (string, error) {
	content, err := yaml.Marshal(settings)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cluster.directory, name)
	return path, os.WriteFile(path, content, 0o600)
}
