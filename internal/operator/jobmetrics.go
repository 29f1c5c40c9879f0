// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// jobMetrics are the metrics of the jobs of one kind. No label has the name of a job,
// because that would be too many series.
type jobMetrics struct {
	kind                                       job.Kind
	created, succeeded, failed                 *prometheus.CounterVec
	duration, timeToStart, gang, init, connect *prometheus.HistogramVec
	starts                                     stopwatches
}

var (
	secondsOfRuns   = []float64{10, 60, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400}
	secondsOfStarts = []float64{0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	secondsOfMPI    = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
)

func metricName(kind job.Kind, name string) string {
	return "training_operator_" + kind.Type() + "_" + name
}

// newJobMetrics are the metrics of a kind. Only TrainJobs have runtimes.
func newJobMetrics(kind job.Kind) *jobMetrics {
	labels := []string{"namespace"}
	if kind.Traits().HasRuntime {
		labels = append(labels, "runtime")
	}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricName(kind, name), Help: help}, slices.Concat(labels, more))
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricName(kind, name), Help: help, Buckets: buckets}, labels)
	}
	return &jobMetrics{
		kind:        kind,
		created:     counter("created_total", "Number of jobs created."),
		succeeded:   counter("succeeded_total", "Number of jobs that succeeded."),
		failed:      counter("failed_total", "Number of jobs that failed, by root cause.", "failure_reason"),
		duration:    histogram("duration_seconds", "Run time in seconds, from the last pod scheduled until completion.", secondsOfRuns),
		timeToStart: histogram("time_to_start_seconds", "Time in seconds from submission until every pod was scheduled.", secondsOfStarts),
		gang:        histogram("gang_scheduling_duration_seconds", "Time in seconds from admission until every pod was scheduled.", secondsOfStarts),
		init:        histogram("mpi_init_duration_seconds", "Time in seconds from the start of the launcher's command until mpirun connected to the last worker.", secondsOfMPI),
		connect:     histogram("ssh_connect_duration_seconds", "Time in seconds until the launcher reached the slowest worker.", secondsOfMPI),
	}
}

func (jm *jobMetrics) register(to prometheus.Registerer) error {
	for _, collector := range []prometheus.Collector{jm.created, jm.succeeded, jm.failed,
		jm.duration, jm.timeToStart, jm.gang, jm.init, jm.connect} {
		if err := to.Register(collector); err != nil {
			return fmt.Errorf("register the metrics of %s: %w", jm.kind, err)
		}
	}
	return nil
}

// forget deletes the series of a deleted namespace.
func (jm *jobMetrics) forget(namespace string) {
	deleted := prometheus.Labels{"namespace": namespace}
	for _, counter := range []*prometheus.CounterVec{jm.created, jm.succeeded, jm.failed} {
		counter.DeletePartialMatch(deleted)
	}
	for _, histogram := range []*prometheus.HistogramVec{jm.duration, jm.timeToStart, jm.gang, jm.init, jm.connect} {
		histogram.DeletePartialMatch(deleted)
	}
}

// note counts changes of a job.
func (jm *jobMetrics) note(runtime string, j *job.Job, previous diagnosis.Previous, verdict *diagnosis.Verdict) {
	labels := []string{j.Namespace}
	if j.Kind.Traits().HasRuntime {
		labels = append(labels, runtime)
	}
	if previous.Phase == "" {
		jm.created.WithLabelValues(labels...).Inc()
	}
	if previous.StartTime == nil && verdict.StartTime != nil {
		sinceSubmit, sinceAdmission := jm.starts.take(j.UID).toStart(previous, verdict)
		observe(jm.timeToStart, labels, sinceSubmit)
		observe(jm.gang, labels, sinceAdmission)
	}
	if !previous.Finished() && verdict.CompletionTime != nil {
		jm.noteEnd(labels, previous, verdict)
	}
}

func observe(histogram *prometheus.HistogramVec, labels []string, took *time.Duration) {
	if took != nil {
		histogram.WithLabelValues(labels...).Observe(took.Seconds())
	}
}

func (jm *jobMetrics) noteEnd(labels []string, previous diagnosis.Previous, verdict *diagnosis.Verdict) {
	if verdict.Phase == training.PhaseFailed {
		jm.failed.WithLabelValues(append(labels, string(verdict.FailureReason))...).Inc()
	} else {
		jm.succeeded.WithLabelValues(labels...).Inc()
	}
	observe(jm.duration, labels, between(verdict.StartTime, verdict.CompletionTime))
	if report := verdict.Report; report != nil && report.Hosts.Reached > 0 {
		lifetime := between(&previous.Submitted, verdict.CompletionTime)
		observe(jm.connect, labels, plausible(report.Timings.Connect, lifetime))
		if report.Timings.Init > 0 {
			observe(jm.init, labels, plausible(report.Timings.Init, lifetime))
		}
	}
}

// plausible returns a duration of the launcher's report, or nil if it cannot be true: a
// user's image can write any report. The lifetime is rounded to seconds.
func plausible(seconds float64, lifetime *time.Duration) *time.Duration {
	if lifetime == nil || seconds < 0 || seconds > lifetime.Seconds()+1 {
		return nil
	}
	return new(time.Duration(seconds * float64(time.Second)))
}

// jobGauges counts jobs whenever metrics are read. A counter in memory would be wrong
// after a restart of the operator.
type jobGauges struct {
	reader          client.Reader
	kind            kind
	running, queued *prometheus.Desc
}

// newJobGauges keeps the suffix _total for MPIJobs, although they are gauges, because
// existing dashboards use those names.
func newJobGauges(reader client.Reader, kind kind) *jobGauges {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(metricName(kind.name(), name+kind.name().Traits().GaugeSuffix), help, []string{"namespace"}, nil)
	}
	return &jobGauges{
		reader: reader, kind: kind,
		running: describe("running", "Number of running jobs."), queued: describe("queued", "Number of jobs that wait for a queue, for a quota or for their pods to be scheduled."),
	}
}

func (jg *jobGauges) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- jg.running
	descriptions <- jg.queued
}

func (jg *jobGauges) Collect(found chan<- prometheus.Metric) {
	running, queued := map[string]int{}, map[string]int{}
	count := func(namespace string, previous diagnosis.Previous) {
		switch {
		case previous.Phase == training.PhaseRunning:
			running[namespace]++
		case isQueued(previous):
			queued[namespace]++
		}
	}
	if err := jg.each(count); err != nil {
		found <- prometheus.NewInvalidMetric(jg.running, err)
		return
	}
	for namespace, number := range running {
		found <- prometheus.MustNewConstMetric(jg.running, prometheus.GaugeValue, float64(number), namespace)
	}
	for namespace, number := range queued {
		found <- prometheus.MustNewConstMetric(jg.queued, prometheus.GaugeValue, float64(number), namespace)
	}
}

// isQueued reports whether a job waits for resources. A job that its user suspended does
// not, nor does a job whose pods are all scheduled.
func isQueued(previous diagnosis.Previous) bool {
	return previous.Phase == training.PhasePending && previous.StartTime == nil && (!previous.Suspended || previous.Queued)
}

// each calls visit for every job of the kind in the cache.
func (jg *jobGauges) each(visit func(namespace string, previous diagnosis.Previous)) error {
	// The list is large and only read: it is not copied.
	list := jg.kind.emptyList()
	if err := jg.reader.List(context.Background(), list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for _, object := range jg.kind.items(list) {
		if jg.kind.isForeign(object) {
			continue
		}
		visit(object.GetNamespace(), jg.kind.previous(object))
	}
	return nil
}
