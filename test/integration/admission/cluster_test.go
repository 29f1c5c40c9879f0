// Package admission tests the job APIs and their gate: the CRDs and webhooks as
// they are deployed, the operator as it runs, on a real API server.
package admission

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/config"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
)

const (
	repository        = "../../.."
	operatorNamespace = "trireme-system"
)

// cluster is an API server with our CRDs and a running operator.
type cluster struct {
	environment *envtest.Environment
	client      client.WithWatch
	warnings    *warnings
	audit       *lines
	stop        func()
}

// startCluster starts everything. change adjusts the operator's configuration.
func startCluster(t testing.TB, change ...func(*config.Config)) *cluster {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	environment := controlplane.Start(t, &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(repository, "config/crd")},
		ErrorIfCRDPathMissing: true,
	})
	cluster := &cluster{environment: environment, warnings: &warnings{}, audit: &lines{}}
	cluster.client = cluster.as(t, environment.Config)
	cluster.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}})
	cluster.create(t, leadingTest())
	cluster.startOperator(t, change...)
	return cluster
}

// leadingTest is the Lease of whoever works on jobs. A test has it, so that the
// operator only answers: jobs stay as they were created.
func leadingTest() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "trireme-leader"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("test"), LeaseDurationSeconds: new(int32(86400)), AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
		},
	}
}

// as is a client that keeps the warnings it is given.
func (cluster *cluster) as(t testing.TB, connection *rest.Config) client.WithWatch {
	t.Helper()
	connection = rest.CopyConfig(connection)
	connection.QPS, connection.Burst = 1000, 1000
	connection.WarningHandlerWithContext = cluster.warnings
	made, err := client.NewWithWatch(connection, client.Options{Scheme: operator.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// startOperator runs the operator's program with the role that it is deployed
// with, and waits until it serves.
func (cluster *cluster) startOperator(t testing.TB, change ...func(*config.Config)) {
	t.Helper()
	settings := operatorSettings(t, change...)
	cluster.installWebhooks(t, settings.Webhook.Port)
	cluster.stop = cluster.run(t, settings)
	cluster.waitUntilServed(t)
}

// operatorSettings are the defaults, for an operator that is not in a pod.
func operatorSettings(t testing.TB, change ...func(*config.Config)) *config.Config {
	t.Helper()
	settings := config.Default()
	settings.Webhook.Port = int32(freePort(t))
	settings.Webhook.Host = "localhost"
	settings.Webhook.CertificateDirectory = t.TempDir()
	settings.Metrics.BindAddress = config.MetricsOff
	settings.ClusterDomain = "cluster.local" // Nobody tells it, as it tells pods.
	for _, change := range change {
		change(settings)
	}
	return settings
}

// run starts one replica, waits until it is ready, and returns what ends it.
func (cluster *cluster) run(t testing.TB, settings *config.Config) (stop func()) {
	t.Helper()
	probes := fmt.Sprintf("localhost:%d", freePort(t))
	command := exec.Command(operatorProgram(t), "--config", write(t, "config.yaml", marshal(t, settings)),
		"--namespace", operatorNamespace, "--health-probe-bind-address", probes, "--zap-log-level=error")
	command.Env = append(os.Environ(), "KUBECONFIG="+write(t, "kubeconfig", cluster.operatorIdentity(t)))
	var logs lines
	command.Stdout, command.Stderr = cluster.audit, &logs
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	stop = sync.OnceFunc(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("the operator ended with %v:\n%s", err, &logs)
		}
	})
	t.Cleanup(stop)
	eventually(t, "the operator is ready", func() error {
		if len(ended) > 0 {
			t.Fatalf("the operator ended while it was waited for:\n%s", &logs)
		}
		return get("http://" + probes + "/readyz")
	})
	return stop
}

func get(address string) error {
	response, err := http.Get(address)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, response.Status)
	}
	return nil
}

// operatorProgram is cmd/operator, built once.
var buildOperator = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("trireme-operator-%d", os.Getpid()))
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/operator")
	build.Dir = repository
	output, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the operator: %w\n%s", err, output)
	}
	return path, nil
})

func operatorProgram(t testing.TB) string {
	t.Helper()
	path, err := buildOperator()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func marshal(t testing.TB, value any) []byte {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// operatorIdentity is the kubeconfig of a service account with the roles of
// config/rbac and nothing else.
func (cluster *cluster) operatorIdentity(t testing.TB) []byte {
	t.Helper()
	for _, file := range []string{"role.yaml", "binding.yaml"} {
		for _, document := range documents(t, filepath.Join(repository, "config/rbac", file)) {
			cluster.createIfMissing(t, document)
		}
	}
	identity, err := cluster.environment.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + operatorNamespace + ":trireme-operator",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + operatorNamespace, "system:authenticated"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := identity.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// installWebhooks installs the configurations that are deployed, with the one
// change that there is no Service here to send requests to.
func (cluster *cluster) installWebhooks(t testing.TB, port int32) {
	t.Helper()
	var judging admissionregistrationv1.ValidatingWebhookConfiguration
	var noting admissionregistrationv1.MutatingWebhookConfiguration
	for file, configuration := range map[string]client.Object{"webhooks.yaml": &judging, "creator.yaml": &noting} {
		if err := yaml.UnmarshalStrict(read(t, filepath.Join(repository, "config/webhook", file)), configuration); err != nil {
			t.Fatal(err)
		}
	}
	for i := range judging.Webhooks {
		reachHere(&judging.Webhooks[i].ClientConfig, port)
	}
	for i := range noting.Webhooks {
		reachHere(&noting.Webhooks[i].ClientConfig, port)
	}
	for _, configuration := range []client.Object{&judging, &noting} {
		if err := client.IgnoreNotFound(cluster.client.Delete(t.Context(), configuration.DeepCopyObject().(client.Object))); err != nil {
			t.Fatal(err)
		}
		cluster.create(t, configuration)
	}
}

func reachHere(webhook *admissionregistrationv1.WebhookClientConfig, port int32) {
	webhook.URL = new(fmt.Sprintf("https://localhost:%d%s", port, *webhook.Service.Path))
	webhook.Service = nil
}

// waitUntilServed: the API server learns of new webhooks a moment later. Then a
// TrainJob that names no runtime is refused by one of them, and an MPIJob gets
// its creator from the other.
func (cluster *cluster) waitUntilServed(t testing.TB) {
	t.Helper()
	eventually(t, "the webhooks answer", func() error {
		err := cluster.client.Create(t.Context(), trainJob("default", "is-anybody-there"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "not found in namespace") {
			return fmt.Errorf("a TrainJob without a runtime: %w", err)
		}
		job := mpiJob("default", "who-am-i", func(job *v2beta1.MPIJob) { job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(2)) })
		if err := cluster.client.Create(t.Context(), job, client.DryRunAll); err != nil {
			return fmt.Errorf("an MPIJob: %w", err)
		}
		if job.Annotations[training.AnnotationCreatedBy] == "" {
			return errors.New("an MPIJob has no creator")
		}
		return nil
	})
}

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// namespace makes a namespace of a test's own.
func (cluster *cluster) namespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}
	cluster.create(t, namespace)
	return namespace.Name
}

// admit ends that a namespace is left alone.
func (cluster *cluster) admit(t *testing.T, namespace string) {
	t.Helper()
	place := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := cluster.client.Patch(t.Context(), place, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"training.kubeflow.org/admission":null}}}`))); err != nil {
		t.Fatal(err)
	}
	// The label is gone for the API server when a bad job is refused.
	refusal(t, func() error {
		return cluster.client.Create(t.Context(), mpiJob(namespace, "bad", func(job *v2beta1.MPIJob) { job.Spec.SlotsPerWorker = new(int32(0)) }), dryRun)
	})
}

func (cluster *cluster) create(t testing.TB, object client.Object) {
	t.Helper()
	if err := cluster.client.Create(context.Background(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

func (cluster *cluster) createIfMissing(t testing.TB, object client.Object) {
	t.Helper()
	if err := cluster.client.Create(context.Background(), object); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// eventually tries until something holds, because the operator learns of what a
// test creates through a watch.
func eventually(t testing.TB, what string, holds func() error) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (cluster *cluster) priorityClass(t testing.TB, name string) {
	t.Helper()
	cluster.createIfMissing(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 1000})
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
