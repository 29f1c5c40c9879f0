// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/accounting"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/operator/reports"
)

// jobMetrics are the metrics of the jobs of one kind. No label has the name of a job,
// because that would be too many series.
type jobMetrics struct {
	kind                                              job.Kind
	created, succeeded, failed, restarts, gpuSeconds  *prometheus.CounterVec
	duration, timeToStart, queue, gang, init, connect *prometheus.HistogramVec
	starts                                            stopwatches
	queues                                            queueNames
	demands                                           demands
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
	histogram := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricName(kind, name), Help: help, Buckets: buckets}, slices.Concat(labels, more))
	}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricName(kind, name), Help: help}, slices.Concat(labels, more))
	}
	return &jobMetrics{
		gpuSeconds: prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricName(kind, "gpu_seconds_total"),
			Help: "GPUs that finished jobs had requested, times seconds, by what the job did: waiting for nodes, idle (it had nodes, and its ranks had not started) or running."}, []string{"namespace", "queue", "state"}),
		kind:        kind,
		created:     counter("created_total", "Number of jobs created."),
		succeeded:   counter("succeeded_total", "Number of jobs that succeeded."),
		failed:      counter("failed_total", "Number of jobs that failed, by root cause.", "failure_reason"),
		restarts:    counter("restarts_total", "Number of restarts of jobs, by the cause of the failure before.", "failure_reason"),
		duration:    histogram("duration_seconds", "Run time in seconds, from the last pod scheduled until completion.", secondsOfRuns),
		timeToStart: histogram("time_to_start_seconds", "Time in seconds from submission until every pod was scheduled.", secondsOfStarts),
		queue:       histogram("queue_duration_seconds", "Time in seconds from submission until the job was admitted: it was not suspended, had quota in its queue, and its initializer had succeeded.", secondsOfStarts, "queue"),
		gang:        histogram("gang_scheduling_duration_seconds", "Time in seconds from admission until every pod was scheduled.", secondsOfStarts),
		init:        histogram("mpi_init_duration_seconds", "Time in seconds from the start of the launcher's command until mpirun connected to the last worker.", secondsOfMPI),
		connect:     histogram("ssh_connect_duration_seconds", "Time in seconds until the launcher reached the slowest worker.", secondsOfMPI),
	}
}

// Metrics are the operator's own metrics, for their documentation.
func Metrics() (all []prometheus.Collector) {
	for _, kind := range []kind{mpiJobs{}, trainJobs{}, jobSets{}} {
		metrics := newJobMetrics(kind.name())
		all = append(append(all, metrics.collectors()...), newJobGauges(nil, kind, metrics))
	}
	return append(all, reports.Metrics()...)
}

// collectors are all metrics of a kind but the gauges.
func (jm *jobMetrics) collectors() (all []prometheus.Collector) {
	for _, counter := range jm.counters() {
		all = append(all, counter)
	}
	for _, histogram := range jm.histograms() {
		all = append(all, histogram)
	}
	return all
}

func (jm *jobMetrics) counters() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{jm.created, jm.succeeded, jm.failed, jm.restarts, jm.gpuSeconds}
}

func (jm *jobMetrics) histograms() []*prometheus.HistogramVec {
	return []*prometheus.HistogramVec{jm.duration, jm.timeToStart, jm.queue, jm.gang, jm.init, jm.connect}
}

func (jm *jobMetrics) register(to prometheus.Registerer) error {
	for _, collector := range jm.collectors() {
		if err := to.Register(collector); err != nil {
			return fmt.Errorf("register the metrics of %s: %w", jm.kind, err)
		}
	}
	return nil
}

// forget deletes the series of a deleted namespace.
func (jm *jobMetrics) forget(namespace string) {
	deleted := prometheus.Labels{"namespace": namespace}
	for _, counter := range jm.counters() {
		counter.DeletePartialMatch(deleted)
	}
	for _, histogram := range jm.histograms() {
		histogram.DeletePartialMatch(deleted)
	}
	jm.queues.forget(namespace)
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
	jm.demands.put(j)
	if admitted := stepOf(verdict.Timeline, training.StepAdmitted); admitted != nil && stepOf(previous.Timeline, training.StepAdmitted) == nil {
		observe(jm.queue, append(slices.Clone(labels), jm.queues.label(j.Namespace, j.Queue)), between(&previous.Submitted, admitted))
	}
	if restart := verdict.Restart; restart != nil && (previous.Restart == nil || previous.Restart.Count < restart.Count) {
		jm.restarts.WithLabelValues(append(slices.Clone(labels), string(restart.Reason))...).Inc()
	}
	if previous.StartTime == nil && verdict.StartTime != nil {
		sinceSubmit, sinceAdmission := jm.starts.take(j.UID).toStart(previous, verdict)
		observe(jm.timeToStart, labels, sinceSubmit)
		observe(jm.gang, labels, sinceAdmission)
	}
	if !previous.Finished() && verdict.CompletionTime != nil {
		jm.noteEnd(labels, previous, verdict)
		jm.noteGPUs(j, previous, verdict)
	}
}

// noteGPUs adds what a job that has finished did with the GPUs that it had requested.
func (jm *jobMetrics) noteGPUs(j *job.Job, previous diagnosis.Previous, verdict *diagnosis.Verdict) {
	gpus := job.GPUs(j.TotalRequests()).AsApproximateFloat64()
	if gpus == 0 {
		return
	}
	end := verdict.CompletionTime.Time
	for state, period := range accounting.Of(verdict.Timeline, previous.Submitted.Time, end, end) {
		jm.gpuSeconds.WithLabelValues(j.Namespace, jm.queues.label(j.Namespace, j.Queue), string(state)).Add(gpus * period.Length().Seconds())
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
