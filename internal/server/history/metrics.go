// SPDX-License-Identifier: Apache-2.0

package history

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/trireme-mpi/trireme/internal/engine/history"
)

// Operations of the store, for a label.
const (
	operationOpen   = "open"
	operationRead   = "read"
	operationWrite  = "write"
	operationDelete = "delete"
)

// metrics of the history. No label has the name of a job or of a namespace.
type metrics struct {
	records, bytes prometheus.Gauge
	written, lost  prometheus.Counter
	removed        *prometheus.CounterVec
	errors         *prometheus.CounterVec
	corrupt        prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		records: prometheus.NewGauge(prometheus.GaugeOpts{Name: "trireme_history_records", Help: "Number of records of finished jobs in the store."}),
		bytes:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "trireme_history_bytes", Help: "Size of all records with their logs in the store."}),
		written: prometheus.NewCounter(prometheus.CounterOpts{Name: "trireme_history_written_total", Help: "Number of records that were written."}),
		lost:    prometheus.NewCounter(prometheus.CounterOpts{Name: "trireme_history_lost_total", Help: "Number of finished jobs without a record, because it could not be written."}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trireme_history_removed_total", Help: "Number of records that were deleted, by cause: age, size, or request of a user.",
		}, []string{"cause"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trireme_history_store_errors_total", Help: "Number of operations of the store that failed: open, read, write, delete.",
		}, []string{"operation"}),
		corrupt: prometheus.NewCounter(prometheus.CounterOpts{Name: "trireme_history_corrupt_total", Help: "Number of records or logs that were found to be corrupt, and are not shown."}),
	}
	// The first error must be visible as an increase.
	for _, cause := range []history.Cause{history.CauseAge, history.CauseSize, history.CauseRequest} {
		m.removed.WithLabelValues(string(cause))
	}
	for _, operation := range []string{operationOpen, operationRead, operationWrite, operationDelete} {
		m.errors.WithLabelValues(operation)
	}
	return m
}

// Metrics are the metrics of the history, for their documentation.
func Metrics() []prometheus.Collector { return newMetrics().collectors() }

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.records, m.bytes, m.written, m.lost, m.removed, m.errors, m.corrupt}
}
