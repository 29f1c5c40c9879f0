package usage

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
)

const (
	// mostPoints is how many samples of a pod are asked for: as many as a chart shows.
	mostPoints = 120
	// shortestStep is how often Prometheus looks, usually.
	shortestStep = 15 * time.Second
	// shortestRate is the time over which a rate is taken, at least: it has to hold two
	// samples, and some clusters take one a minute.
	shortestRate = 2 * time.Minute
)

// rangeOf is the time that is asked for.
func rangeOf(now time.Time, window time.Duration) prometheusv1.Range {
	step := max(shortestStep, (window / mostPoints).Truncate(time.Second))
	points := max(1, min(mostPoints, window/step))
	return prometheusv1.Range{Start: now.Add(-step * (points - 1)), End: now, Step: step}
}

// metric is one thing that is measured.
type metric struct {
	// what it is, in messages.
	what string
	// query in PromQL, with places for the pods and for the time of a rate.
	query string
	// unit is what Prometheus' value is multiplied by.
	unit float64
	// of is where the samples of a pod go.
	of func(*Pod) *[]Sample
}

// Clusters may be scraped twice, and a container that starts anew has another series
// for a while: the largest of those that are the same thing counts once.
var metrics = []metric{
	{"CPU", containers("rate(container_cpu_usage_seconds_total{SELECTED}[RATE])"), 1, func(pod *Pod) *[]Sample { return &pod.CPU }},
	{"memory", containers("container_memory_working_set_bytes{SELECTED}"), 1, func(pod *Pod) *[]Sample { return &pod.Memory }},
	{"network sent", `sum by (pod) (max by (pod, interface) (rate(container_network_transmit_bytes_total{PODS,interface!="lo"}[RATE])))`,
		1, func(pod *Pod) *[]Sample { return &pod.NetworkTransmit }},
	{"network received", `sum by (pod) (max by (pod, interface) (rate(container_network_receive_bytes_total{PODS,interface!="lo"}[RATE])))`,
		1, func(pod *Pod) *[]Sample { return &pod.NetworkReceive }},
	{"GPU", gpus("avg", "DCGM_FI_DEV_GPU_UTIL"), 1, func(pod *Pod) *[]Sample { return &pod.GPU }},
	// DCGM counts in MiB.
	{"GPU memory", gpus("sum", "DCGM_FI_DEV_FB_USED"), 1 << 20, func(pod *Pod) *[]Sample { return &pod.GPUMemory }},
}

// containers adds up the containers of a pod, without its sandbox, which some runtimes
// call POD. Where a kubelet does not know them, there is still the series of the whole
// pod, which names no container.
func containers(series string) string {
	of := func(matchers string) string { return strings.Replace(series, "SELECTED", "PODS,"+matchers, 1) }
	return "sum by (pod) (max by (pod, container) (" + of(`container!="",container!="POD"`) + ")) or max by (pod) (" + of(`container=""`) + ")"
}

// gpus are known by the pods that use them. Where Prometheus keeps the labels of its
// own for the exporter, those of the pod are called exported_pod and exported_namespace.
func gpus(together, series string) string {
	return fmt.Sprintf(`%[1]s by (exported_pod) (max by (exported_pod, UUID, gpu, GPU_I_ID) (%[2]s{EXPORTED}))`+
		` or %[1]s by (pod) (max by (pod, UUID, gpu, GPU_I_ID) (%[2]s{PODS,exported_pod=""}))`, together, series)
}

// queryFor is the query for pods of one namespace.
func (metric metric) queryFor(pods []*corev1.Pod, step time.Duration) string {
	namespace, names := selectorsOf(pods)
	return strings.NewReplacer(
		"PODS", fmt.Sprintf("namespace=%s,pod=~%s", namespace, names),
		"EXPORTED", fmt.Sprintf("exported_namespace=%s,exported_pod=~%s", namespace, names),
		"RATE", fmt.Sprintf("%.0fs", max(shortestRate, step).Seconds()),
	).Replace(metric.query)
}

// selectorsOf quotes all that comes from users: the names as regular expressions, and
// both as strings of PromQL, which are those of Go.
func selectorsOf(pods []*corev1.Pod) (namespace, names string) {
	quoted := make([]string, 0, len(pods))
	for _, pod := range pods {
		quoted = append(quoted, regexp.QuoteMeta(pod.Name))
	}
	return strconv.Quote(pods[0].Namespace), strconv.Quote(strings.Join(quoted, "|"))
}

// podOf is the pod that a series is about.
func podOf(labels model.Metric) string {
	if exported := labels["exported_pod"]; exported != "" {
		return string(exported)
	}
	return string(labels["pod"])
}
