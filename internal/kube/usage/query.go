// SPDX-License-Identifier: Apache-2.0

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
	// maxPoints is how many samples of a pod are requested: as many as a chart shows.
	maxPoints = 120
	// minStep is the usual scrape interval of Prometheus.
	minStep = 15 * time.Second
	// minRate is the minimum interval of a rate: it must contain two samples, and some
	// clusters scrape once a minute.
	minRate = 2 * time.Minute
)

// rangeOf returns the time range of queries.
func rangeOf(now time.Time, window time.Duration) prometheusv1.Range {
	step := max(minStep, (window / maxPoints).Truncate(time.Second))
	points := max(1, min(maxPoints, window/step))
	return prometheusv1.Range{Start: now.Add(-step * (points - 1)), End: now, Step: step}
}

// metric is one thing that is measured.
type metric struct {
	// what is its name in messages.
	what string
	// query is PromQL with placeholders for the pods and the interval of a rate.
	query string
	// unit is the factor of Prometheus' values.
	unit float64
	// of returns the samples of a pod.
	of func(*Pod) *[]Sample
}

// metrics use max over duplicates: a cluster may be scraped twice, and a restarted
// container has two series for a while.
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
// call POD. A kubelet without container series still has the series of the whole pod,
// which has no container label.
func containers(series string) string {
	of := func(matchers string) string { return strings.Replace(series, "SELECTED", "PODS,"+matchers, 1) }
	return "sum by (pod) (max by (pod, container) (" + of(`container!="",container!="POD"`) + ")) or max by (pod) (" + of(`container=""`) + ")"
}

// gpus returns a query for the GPUs of pods. If Prometheus keeps its own labels for the
// exporter, those of the pod are called exported_pod and exported_namespace.
func gpus(aggregation, series string) string {
	return fmt.Sprintf(`%[1]s by (exported_pod) (max by (exported_pod, UUID, gpu, GPU_I_ID) (%[2]s{EXPORTED}))`+
		` or %[1]s by (pod) (max by (pod, UUID, gpu, GPU_I_ID) (%[2]s{PODS,exported_pod=""}))`, aggregation, series)
}

// queryFor returns the query for pods of one namespace.
func (m metric) queryFor(pods []*corev1.Pod, step time.Duration) string {
	namespace, names := selectorsOf(pods)
	return strings.NewReplacer(
		"PODS", fmt.Sprintf("namespace=%s,pod=~%s", namespace, names),
		"EXPORTED", fmt.Sprintf("exported_namespace=%s,exported_pod=~%s", namespace, names),
		"RATE", fmt.Sprintf("%.0fs", max(minRate, step).Seconds()),
	).Replace(m.query)
}

// selectorsOf quotes values from users: the names as regular expressions, and both as
// PromQL strings, which have the syntax of Go.
func selectorsOf(pods []*corev1.Pod) (namespace, names string) {
	quoted := make([]string, 0, len(pods))
	for _, pod := range pods {
		quoted = append(quoted, regexp.QuoteMeta(pod.Name))
	}
	return strconv.Quote(pods[0].Namespace), strconv.Quote(strings.Join(quoted, "|"))
}

// podOf returns the name of the pod of a series.
func podOf(labels model.Metric) string {
	if exported := labels["exported_pod"]; exported != "" {
		return string(exported)
	}
	return string(labels["pod"])
}
