// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of reports. No label has the name of a job, because that would be too many series.
type metrics struct {
	received, refused, stalls, stragglers *prometheus.CounterVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "training_operator_" + name, Help: help}, labels)
	}
	return &metrics{
		received:   counter("reports_total", "Number of reports of running jobs that were accepted, by type: progress of a program, or activity of all ranks.", "type"),
		refused:    counter("reports_refused_total", "Number of reports that were refused, by reason.", "reason"),
		stalls:     counter("stalls_total", "Number of times that a job was found to make no progress.", "namespace"),
		stragglers: counter("stragglers_total", "Number of ranks that were found to be slower than the others of their job.", "namespace"),
	}
}

// Metrics are all metrics of this package, for their reference.
func Metrics() []prometheus.Collector { return newMetrics().collectors() }

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.received, m.refused, m.stalls, m.stragglers}
}

func (m *metrics) register(to prometheus.Registerer) error {
	for _, collector := range m.collectors() {
		if err := to.Register(collector); err != nil {
			return fmt.Errorf("register the metrics of reports: %w", err)
		}
	}
	return nil
}
