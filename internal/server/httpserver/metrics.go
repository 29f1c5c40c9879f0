// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics of the server. Labels are routes and codes, never names of jobs or users.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	streams  prometheus.Gauge
	refusals *prometheus.CounterVec
	open     prometheus.Gauge
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		registry: registry,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trireme_server_requests_total", Help: "Requests over REST and gRPC, by route, method and HTTP status code.",
		}, []string{"route", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trireme_server_request_duration_seconds", Help: "Duration of requests in seconds, without streams.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route", "method"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "trireme_server_requests_in_flight", Help: "Requests in progress, including streams."}),
		streams:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "trireme_server_streams", Help: "Open streams."}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trireme_server_refusals_total", Help: "Requests and connections refused because a limit was reached, by cause: unauthenticated, source-connections, connections, and of one user user-rate, user-calls, user-streams, user-bodies.",
		}, []string{"cause"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "trireme_server_connections", Help: "Open connections."}),
	}
	for _, cause := range []string{causeStreams, causeCalls, causeRate, causeBodies, causeUnauthenticated, causeConnections, causeConnectionsPerSource} {
		// The first refusal must be visible as an increase.
		m.refusals.WithLabelValues(cause)
	}
	m.registry.MustRegister(m.collectors()...)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Metrics are the metrics of the port, for their documentation.
func Metrics() []prometheus.Collector { return newMetrics(prometheus.NewRegistry()).collectors() }

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.duration, m.inFlight, m.streams, m.refusals, m.open}
}

func (m *metrics) observe(call *call, method string, code int, took time.Duration) {
	route := call.route()
	if route == "" {
		route = "none"
	}
	if verbs[method] == "" && method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions {
		// A client can send any number of method names that do not exist.
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(code)).Inc()
	if !call.stream {
		m.duration.WithLabelValues(route, method).Observe(took.Seconds())
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
