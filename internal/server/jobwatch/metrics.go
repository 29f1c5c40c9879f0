// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// metrics of the cache.
type metrics struct {
	watchers     *prometheus.GaugeVec
	events       *prometheus.CounterVec
	resumes      *prometheus.CounterVec
	lastReceived *prometheus.GaugeVec
}

// newMetrics registers the metrics, if there is a registry.
func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		watchers: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "trireme_server_watchers", Help: "Connected watchers of jobs."}, []string{"kind"}),
		events:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trireme_server_job_events_total", Help: "Changes of jobs that the server received."}, []string{"kind", "type"}),
		resumes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trireme_server_watch_resumes_total",
			Help: "Watches resumed from a resource version, by result: memory, asked (read from the API server), refused (invalid version), expired (version too old), or slow (closed because the client read too slowly)."}, []string{"kind", "result"}),
		lastReceived: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "trireme_server_cache_last_heard_timestamp_seconds", Help: "Time of the last change or bookmark that the API server sent for jobs."}, []string{"kind"}),
	}
	if registry != nil {
		registry.MustRegister(m.collectors()...)
	}
	return m
}

// Metrics are the metrics of the cache, for their documentation.
func Metrics() []prometheus.Collector { return newMetrics(nil).collectors() }

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.watchers, m.events, m.resumes, m.lastReceived}
}

// Results of resuming a watch.
const (
	resumeMemory  = "memory"
	resumeAsked   = "asked"
	resumeRefused = "refused"
	resumeExpired = "expired"
	resumeSlow    = "slow"
)

// kindMetrics are the metrics of one kind.
type kindMetrics struct {
	watchers     prometheus.Gauge
	lastReceived prometheus.Gauge
	events       *prometheus.CounterVec
	resumes      *prometheus.CounterVec
}

func (m *metrics) of(kind *jobview.Kind) *kindMetrics {
	label := prometheus.Labels{"kind": string(kind.Kind)}
	return &kindMetrics{
		watchers: m.watchers.With(label), lastReceived: m.lastReceived.With(label),
		events: m.events.MustCurryWith(label), resumes: m.resumes.MustCurryWith(label),
	}
}

func (k *kindMetrics) event(what EventType) { k.events.WithLabelValues(string(what)).Inc() }

func (k *kindMetrics) resumed(result string) { k.resumes.WithLabelValues(result).Inc() }

func (k *kindMetrics) received() {
	k.lastReceived.Set(float64(time.Now().UnixNano()) / float64(time.Second))
}
