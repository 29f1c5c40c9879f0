// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	promapi "github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/accounting"
	"github.com/trireme-mpi/trireme/internal/testing/dashboards"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

const gpuResource = "nvidia.com/gpu"

// TestDashboards asks a real Prometheus every query of every panel. It scrapes the
// operator, the kubelet and a real kube-state-metrics while jobs of both kinds run, wait,
// succeed, fail and are restarted. Only the exporter of GPUs, and network and disk of pods,
// which the local kubelet does not measure, are simulated.
func TestDashboards(t *testing.T) {
	if !isThorough() {
		t.Skip("it builds kube-state-metrics: make test-all runs it")
	}
	all, err := dashboards.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	stateMetrics := startStateMetrics(t)
	advertiseGPUs(t, 24)
	observed := newObservedJobs(t)
	observed.start()

	long := observed.jobs["MPIJob long"]
	scrapes := newKubeletAccess(t, long).scrape() + operatorScrape(t) + stateMetrics + observed.gpuExporter()
	client, err := promapi.NewClient(promapi.Config{Address: startPrometheus(t, scrapes).address})
	if err != nil {
		t.Fatal(err)
	}
	prometheus := promv1.NewAPI(client)
	observed.waitFor(prometheus)

	for _, dashboard := range all {
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				query := dashboards.Interpolate(target.Expr, map[string]string{"namespace": observed.namespace, "job": "long-mpijob"})
				eventually.Succeeds(t, fmt.Sprintf("%s, panel %q, has data: %s", dashboard.Title, panel.Title, query), func() error {
					return hasData(t.Context(), prometheus, query)
				})
			}
		}
	}
}

// hasData returns an error if a query has no number as its result.
func hasData(ctx context.Context, prometheus promv1.API, query string) error {
	result, _, _, err := prometheus.Query(ctx, query, time.Now())
	if err != nil {
		return err
	}
	samples, ok := result.(model.Vector)
	if !ok || len(samples) == 0 {
		return fmt.Errorf("no series: %s", result)
	}
	for _, sample := range samples {
		if !math.IsNaN(float64(sample.Value)) {
			return nil
		}
	}
	return fmt.Errorf("no numbers: %s", result)
}

// observedJobs are jobs of both kinds in one namespace, in every state that a panel shows.
type observedJobs struct {
	t         *testing.T
	client    client.WithWatch
	namespace string
	jobs      map[string]*theJob
}

func newObservedJobs(t *testing.T) *observedJobs {
	t.Helper()
	api, namespace := newNamespace(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")}},
	}
	if err := api.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	return &observedJobs{t: t, client: api, namespace: namespace, jobs: map[string]*theJob{}}
}

// submit creates a job of each kind that runs a program on two workers with GPUs.
func (o *observedJobs) submit(name, program string, gpus int64, change func(client.Object)) {
	o.t.Helper()
	for kind, object := range both(2, program) {
		object.SetName(name + "-" + strings.ToLower(kind))
		list := small()
		list[gpuResource] = *resource.NewQuantity(gpus, resource.DecimalSI)
		setResources(object, list)
		if change != nil {
			change(object)
		}
		o.jobs[kind+" "+name] = submitTo(o.t, o.client, o.namespace, object)
	}
}

// start creates jobs that succeed, are restarted and fail, run, do not start, and wait.
func (o *observedJobs) start() {
	o.t.Helper()
	o.submit("first", allreduce, 1, nil)
	o.submit("failed", "raise SystemExit(3)", 1, allowRestart)
	o.submit("long", busy, 1, nil)
	o.submit("idle", allreduce, 1, func(object client.Object) { setImage(object, "trireme.local/absent:1") })
	o.submit("waiting", allreduce, 16, nil)
	for _, kind := range []string{"TrainJob", "MPIJob"} {
		o.jobs[kind+" long"].until("the job runs", 3*time.Minute, func(progress training.Progress) bool { return progress.Phase == training.PhaseRunning })
	}
}

// waitFor waits until Prometheus has the metrics of the first jobs, and lets more of them
// finish: a rate needs a change.
func (o *observedJobs) waitFor(prometheus promv1.API) {
	o.t.Helper()
	for _, kind := range []string{"TrainJob", "MPIJob"} {
		o.jobs[kind+" first"].succeeds()
		o.jobs[kind+" failed"].end(3 * time.Minute)
		for _, metric := range []string{"succeeded_total", "failed_total", "restarts_total"} {
			query := fmt.Sprintf("training_operator_%s_%s{namespace=%q}", strings.ToLower(kind), metric, o.namespace)
			eventually.Succeeds(o.t, "Prometheus has "+query, func() error { return hasData(o.t.Context(), prometheus, query) })
		}
	}
	refuseReport(o.t)
	o.submit("second", allreduce, 1, nil)
	for _, kind := range []string{"TrainJob", "MPIJob"} {
		o.jobs[kind+" second"].succeeds()
	}
	for _, state := range accounting.States {
		query := fmt.Sprintf("training_operator_mpijob_gpus{namespace=%q,state=%q}", o.namespace, state)
		eventually.Succeeds(o.t, "Prometheus has "+query, func() error { return hasData(o.t.Context(), prometheus, query) })
	}
}

func allowRestart(object client.Object) {
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		object.Spec.BackoffLimit = new(int32(1))
	case *v2beta1.MPIJob:
		object.Spec.RunPolicy.BackoffLimit = new(int32(1))
	}
}

// refuseReport sends a report with a token that nobody has issued.
func refuseReport(t *testing.T) {
	t.Helper()
	metrics := newMetricsReader(t)
	line := `get endpointslices --namespace trireme-system --selector kubernetes.io/service-name=trireme-reports -o jsonpath='{.items[0].endpoints[0].addresses[0]}:{.items[0].ports[0].port}'`
	address := strings.TrimSpace(kubectl(t, line))
	before := metrics.refusedReports()
	_, err := shell(fmt.Sprintf("curl --silent --insecure --max-time 20 --request POST --header 'Authorization: Bearer none' --data '{}' https://%s/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b/status", address))
	if after := metrics.refusedReports(); err != nil || after <= before {
		t.Errorf("%v reports were refused before, and %v after a refusal (curl: %v)", before, after, err)
	}
}

// gpuExporter serves GPUs, network and disk of the running jobs, which this machine cannot
// measure. The GPUs of one of them are hardly used.
func (o *observedJobs) gpuExporter() string {
	o.t.Helper()
	var pods []corev1.Pod
	busy := map[string]int{}
	for kind, percent := range map[string]int{"TrainJob": 2, "MPIJob": 80} {
		long := o.jobs[kind+" long"]
		pods = append(pods, long.pods("")...)
		busy[long.worker(0).Name] = percent
	}
	begin := time.Now()
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		for pod, percent := range busy {
			fmt.Fprint(writer, gpuSeries(o.namespace, pod, percent, 4000))
		}
		fmt.Fprint(writer, networkSeries(pods, time.Since(begin).Seconds()), diskSeries(pods, time.Since(begin).Seconds()))
	}))
	o.t.Cleanup(server.Close)
	return fmt.Sprintf(`
- job_name: dcgm-exporter
  static_configs:
  - targets: [%q]
    labels: {namespace: gpu-operator, pod: dcgm-exporter}
  metric_relabel_configs:
  # As with Prometheus' own labels, the network keeps those of the kubelet.
  - {source_labels: [__name__, exported_namespace], regex: container_.+;(.+), target_label: namespace}
  - {source_labels: [__name__, exported_pod], regex: container_.+;(.+), target_label: pod}
`, strings.TrimPrefix(server.URL, "http://"))
}

// diskSeries grow by 2000 bytes a second read, and 1000 written.
func diskSeries(pods []corev1.Pod, seconds float64) string {
	var series strings.Builder
	for i := range pods {
		labels := fmt.Sprintf("{namespace=%q,pod=%q}", pods[i].Namespace, pods[i].Name)
		fmt.Fprintf(&series, "container_fs_reads_bytes_total%s %f\ncontainer_fs_writes_bytes_total%s %f\n", labels, 2000*seconds, labels, 1000*seconds)
	}
	return series.String()
}

// operatorScrape is how Prometheus reads the metrics of all replicas of the operator.
func operatorScrape(t *testing.T) string {
	t.Helper()
	needsLocalCluster(t, "Prometheus on this machine reads from pods")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(newMetricsReader(t).token), 0o600); err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, pod := range operatorPods(t) {
		targets = append(targets, fmt.Sprintf("%q", pod.Status.PodIP+":8443"))
	}
	return fmt.Sprintf(`
- job_name: trireme-operator
  scheme: https
  authorization: {credentials_file: %q}
  tls_config: {ca_file: %q, server_name: %q}
  static_configs:
  - targets: [%s]
`, token, authorityFile(t), webhookName, strings.Join(targets, ", "))
}

// startStateMetrics builds kube-state-metrics from its module and runs it on loopback. It
// returns how Prometheus reads from it.
func startStateMetrics(t *testing.T) string {
	t.Helper()
	needsLocalCluster(t, "kube-state-metrics runs on this machine")
	program := filepath.Join(t.TempDir(), "kube-state-metrics")
	if output, err := shell("CGO_ENABLED=0 GOFLAGS= go build -C test/e2e/kube-state-metrics -mod=readonly -trimpath -buildvcs=false -o " + program + " k8s.io/kube-state-metrics/v2"); err != nil {
		t.Fatalf("build kube-state-metrics: %v\n%s", err, output)
	}
	kubeconfig, err := shell(`eval "$(bin/cluster env)" && printf %s "$KUBECONFIG"`)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(freeAddress(t), ":")
	_, telemetry, _ := strings.Cut(freeAddress(t), ":")
	command := exec.Command(program, "--kubeconfig", kubeconfig, "--host", "127.0.0.1", "--port", port,
		"--telemetry-host", "127.0.0.1", "--telemetry-port", telemetry, "--resources", "pods,nodes,resourcequotas")
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		if _ = command.Wait(); t.Failed() {
			t.Logf("kube-state-metrics wrote:\n%s", output.String()[max(0, output.Len()-2000):])
		}
	})
	return fmt.Sprintf(`
- job_name: kube-state-metrics
  honor_labels: true
  static_configs:
  - targets: ["127.0.0.1:%s"]
`, port)
}

// advertiseGPUs gives the node GPUs that no device plugin serves: pods get no device.
func advertiseGPUs(t *testing.T, count int) {
	t.Helper()
	node := strings.TrimSpace(kubectl(t, `get nodes --selector '!trireme.local/fake-node' --output 'jsonpath={.items[0].metadata.name}'`))
	patch := func(operation string) error {
		_, err := shell(fmt.Sprintf(`bin/cluster kubectl patch node %s --subresource status --type json --patch '[{"op": %q, "path": "/status/capacity/nvidia.com~1gpu", "value": "%d"}]'`, node, operation, count))
		return err
	}
	if err := patch("add"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = patch("remove") })
}
