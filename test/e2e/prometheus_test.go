// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	clientmaker "github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// busy works a little, for as long as it is let.
const busy = `
import time
from mpi4py import MPI
while True:
    sum(range(300000))
    time.sleep(0.1)
`

// What a real Prometheus, which scrapes the kubelet and two exporters of GPUs, knows of
// the pods of a job; and what is known without it.
func TestPrometheus(t *testing.T) {
	works := failFast(implementations[1].job(2, busy))
	works.Name = "works"
	job := submit(t, works)
	kubelet := newKubeletAccess(t, job)
	job.until("the job runs", time.Minute, func(progress training.Progress) bool { return progress.Phase == training.PhaseRunning })
	pods := job.pods("")
	program := startPrometheus(t, kubelet.scrape()+exporters(t, job.namespace, pods))
	prometheus, err := usage.NewPrometheus(program.address, nil)
	if err != nil {
		t.Fatal(err)
	}
	reader := callersClient(t)

	var report *usage.Report
	eventually.Succeeds(t, "Prometheus has samples of every pod", func() (err error) {
		if report, err = usage.Choose(prometheus, reader).Of(t.Context(), pods, time.Hour); err != nil {
			return err
		}
		return complete(report)
	})
	wantUsed(t, report)
	wantNoInjection(t, prometheus, pods[0])

	program.stop()
	report = wantSource(t, usage.Choose(prometheus, reader), pods, usage.SourceNone)
	contains(t, report.Message, "Prometheus does not answer", "connection refused", "no metrics API")
	report = wantSource(t, usage.Choose(nil, reader), pods, usage.SourceNone)
	contains(t, report.Message, "no metrics API", "install a metrics server")
	wantMeasured(t, job)
	report = wantSource(t, usage.Choose(prometheus, reader), pods, usage.SourceMetricsAPI)
	contains(t, report.Message, "Prometheus does not answer")
	if cpu := report.Workers[0].CPU; len(cpu) != 1 || cpu[0].Value != 1.5 && cpu[0].Value != 2.5 {
		t.Errorf("the metrics API tells %v", cpu)
	}
}

// callersClient is a client as the server makes one for its callers.
func callersClient(t *testing.T) client.Reader {
	t.Helper()
	config, err := connection()
	if err != nil {
		t.Fatal(err)
	}
	reader, err := clientmaker.NewClientFactory().Client(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

func wantSource(t *testing.T, source usage.Source, pods []corev1.Pod, want string) *usage.Report {
	t.Helper()
	report, err := source.Of(t.Context(), pods, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if report.Source != want || report.Launcher == nil || len(report.Workers) != 2 {
		t.Fatalf("%+v", report)
	}
	return report
}

// What workers use at least: two processes that work about a tenth of the time, seen for
// a fraction of the rate's two minutes.
const (
	leastCPU    = 0.003
	leastMemory = 10 << 20
)

func last(samples []usage.Sample) float64 { return samples[len(samples)-1].Value }

// complete is an error as long as something of a pod is missing.
func complete(report *usage.Report) error {
	if report.Source != usage.SourcePrometheus || report.Message != "" || report.Launcher == nil || len(report.Workers) != 2 {
		return fmt.Errorf("%+v", report)
	}
	for _, pod := range append([]usage.Pod{*report.Launcher}, report.Workers...) {
		for what, samples := range map[string][]usage.Sample{"CPU": pod.CPU, "memory": pod.Memory, "network sent": pod.NetworkTransmit, "network received": pod.NetworkReceive} {
			if len(samples) == 0 {
				return fmt.Errorf("there is no %s of %s", what, pod.PodName)
			}
		}
		if pod.Index != nil && (len(pod.GPU) == 0 || len(pod.GPUMemory) == 0) {
			return fmt.Errorf("there is no GPU of %s", pod.PodName)
		}
		if pod.Index != nil && (last(pod.CPU) < leastCPU || last(pod.Memory) < leastMemory || last(pod.NetworkTransmit) <= 0) {
			return fmt.Errorf("%s has not been seen for long enough: %+v", pod.PodName, pod)
		}
	}
	return nil
}

// wantUsed fails unless the values are those of this job.
func wantUsed(t *testing.T, report *usage.Report) {
	t.Helper()
	if !strings.HasPrefix(report.Launcher.PodName, "works-launcher") || len(report.Launcher.GPU) != 0 {
		t.Errorf("the launcher is %+v", report.Launcher)
	}
	for i, worker := range report.Workers {
		if worker.PodName != fmt.Sprint("works-worker-", i) || *worker.Index != int32(i) {
			t.Errorf("worker %d is %s", i, worker.PodName)
		}
		if cpu, memory := last(worker.CPU), last(worker.Memory); cpu < leastCPU || cpu > 2 || memory < leastMemory || memory > 2<<30 {
			t.Errorf("%s uses %.3f cores and %.0f bytes", worker.PodName, cpu, memory)
		}
		if gpu, memory := last(worker.GPU), last(worker.GPUMemory); gpu != 50+float64(i) || memory != (100+float64(i))*(1<<20)*2 {
			t.Errorf("%s uses %.0f %% of its GPUs and %.0f bytes of their memory", worker.PodName, gpu, memory)
		}
		// A rate over a time of which only the end was seen is too small, but about equally
		// so: a scrape may come between the two questions.
		if sent, received := last(worker.NetworkTransmit), last(worker.NetworkReceive); sent <= 0 || sent > 1100 || math.Abs(received/sent-2) > 0.5 {
			t.Errorf("%s sends %.0f and receives %.0f bytes a second", worker.PodName, sent, received)
		}
		if age := time.Since(worker.CPU[len(worker.CPU)-1].Timestamp); age > time.Minute {
			t.Errorf("the last sample of %s is %s old", worker.PodName, age)
		}
		t.Logf("%s: %.3f cores, %.1f MiB, %.0f B/s sent, %.0f B/s received", worker.PodName, last(worker.CPU), last(worker.Memory)/(1<<20), last(worker.NetworkTransmit), last(worker.NetworkReceive))
	}
}

// wantNoInjection fails if a name becomes more of a query than a name.
func wantNoInjection(t *testing.T, prometheus *usage.Prometheus, pod corev1.Pod) {
	t.Helper()
	pod.Labels = map[string]string{training.LabelReplicaType: training.RoleLauncher}
	for _, name := range []string{`.*`, `x|.*`, `x"} or up{pod=~".*`, "x\n`'\\\"} #", `works-worker-0"} or vector(1) #`} {
		pod.Name = name
		report, err := prometheus.Of(t.Context(), []corev1.Pod{pod}, time.Hour)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if !strings.Contains(report.Message, "no samples") {
			t.Errorf("%q has samples: %+v", name, report)
		}
	}
}

// exporters serve what this machine cannot measure: two GPUs of each worker, as DCGM's
// exporter names them, and the network, of which the local kubelet knows only the
// node's. A pod of the same name elsewhere has them, too. One exporter is scraped so
// that Prometheus' own labels stay and the pod's get another name, the other so that
// the pod's stay.
func exporters(t *testing.T, namespace string, pods []corev1.Pod) string {
	t.Helper()
	var scrapes strings.Builder
	begin := time.Now()
	for worker, honor := range []bool{false, true} {
		pod := fmt.Sprintf("works-worker-%d", worker)
		said := gpuSeries(namespace, pod, 40+worker, 100+worker) + gpuSeries("elsewhere", pod, 99, 9999)
		server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(writer, said)
			if honor {
				fmt.Fprint(writer, networkSeries(pods, time.Since(begin).Seconds()))
			}
		}))
		t.Cleanup(server.Close)
		fmt.Fprintf(&scrapes, `
- job_name: exporter-%d
  honor_labels: %v
  static_configs:
  - targets: [%q]
    labels: {namespace: gpu-operator, pod: dcgm-exporter-%d}
`, worker, honor, strings.TrimPrefix(server.URL, "http://"), worker)
	}
	return scrapes.String()
}

// gpuSeries are two GPUs of a pod, of which the second is busier by 20 %.
func gpuSeries(namespace, pod string, busy, memory int) string {
	var said strings.Builder
	for gpu := range 2 {
		labels := fmt.Sprintf(`{gpu="%d",UUID="GPU-%s-%d",namespace="%s",pod="%s",container="worker"}`, gpu, namespace, gpu, namespace, pod)
		fmt.Fprintf(&said, "DCGM_FI_DEV_GPU_UTIL%s %d\nDCGM_FI_DEV_FB_USED%s %d\n", labels, busy+20*gpu, labels, memory)
		fmt.Fprintf(&said, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE%s 0.%d\n", labels, busy)
	}
	return said.String()
}

// networkSeries grow by 1000 bytes a second sent, and 2000 received, over two
// interfaces; what a pod sends to itself does not count.
func networkSeries(pods []corev1.Pod, seconds float64) string {
	var said strings.Builder
	for i := range pods {
		for device, bytes := range map[string]float64{"eth0": 400, "net1": 600, "lo": 1e9} {
			labels := fmt.Sprintf(`{namespace="%s",pod="%s",interface="%s"}`, pods[i].Namespace, pods[i].Name, device)
			fmt.Fprintf(&said, "container_network_transmit_bytes_total%s %f\ncontainer_network_receive_bytes_total%s %f\n", labels, bytes*seconds, labels, 2*bytes*seconds)
		}
	}
	return said.String()
}

// kubeletAccess is how Prometheus reads the kubelet: with a token of its own and the
// cluster's certificates.
type kubeletAccess struct{ address, tokenFile, authorityFile string }

func (access kubeletAccess) scrape() string {
	return fmt.Sprintf(`
- job_name: cadvisor
  scheme: https
  metrics_path: /metrics/cadvisor
  authorization: {credentials_file: %q}
  tls_config: {ca_file: %q}
  static_configs:
  - targets: [%q]
`, access.tokenFile, access.authorityFile, access.address)
}

func newKubeletAccess(t *testing.T, job *theJob) kubeletAccess {
	t.Helper()
	needsLocalCluster(t, "Prometheus on this machine reads from a kubelet")
	config, err := connection()
	if err != nil {
		t.Fatal(err)
	}
	nodes := kubectl(t, `get nodes --selector '!trireme.local/fake-node' --output 'jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}:{.items[0].status.daemonEndpoints.kubeletEndpoint.Port}'`)
	folder := t.TempDir()
	access := kubeletAccess{address: strings.TrimSpace(nodes), tokenFile: filepath.Join(folder, "token"), authorityFile: filepath.Join(folder, "ca.crt")}
	for path, content := range map[string][]byte{access.tokenFile: []byte(metricsToken(t, job)), access.authorityFile: config.CAData} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return access
}

// metricsToken is the token of a service account that may read the kubelet's metrics
// and nothing else.
func metricsToken(t *testing.T, job *theJob) string {
	t.Helper()
	name := "prometheus-" + job.namespace
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: job.namespace, Name: "prometheus"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
	}
	for _, object := range []client.Object{account, role, binding} {
		if err := job.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = job.client.Delete(context.Background(), object) })
	}
	token := &authenticationv1.TokenRequest{}
	if err := job.client.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// runningPrometheus is Debian's, on loopback.
type runningPrometheus struct {
	address string
	stop    func()
}

func startPrometheus(t *testing.T, scrapes string) runningPrometheus {
	t.Helper()
	path, err := exec.Command("./debian-prometheus").Output()
	if err != nil {
		t.Fatalf("debian-prometheus: %v", err)
	}
	folder := t.TempDir()
	settings := filepath.Join(folder, "prometheus.yml")
	if err := os.WriteFile(settings, []byte("global: {scrape_interval: 1s}\nscrape_configs:"+scrapes), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := freeAddress(t)
	var output bytes.Buffer
	command := exec.Command(strings.TrimSpace(string(path)), "--config.file="+settings, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+listen)
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	t.Cleanup(func() {
		if stop(); t.Failed() {
			t.Logf("Prometheus wrote:\n%s", output.String())
		}
	})
	eventually.Succeeds(t, "Prometheus is ready", func() error {
		response, err := http.Get("http://" + listen + "/-/ready")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", response.Status)
		}
		return nil
	})
	return runningPrometheus{address: "http://" + listen, stop: stop}
}

// freeAddress is one on loopback where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
