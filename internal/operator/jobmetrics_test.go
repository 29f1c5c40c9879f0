// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

var submitted = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// series are the sums of the histograms and the values of the counters that a registry
// has for a namespace, by name.
func series(t *testing.T, registry *prometheus.Registry, namespace string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "namespace" && label.GetValue() == namespace {
					found[family.GetName()] = metric.GetHistogram().GetSampleSum() + metric.GetCounter().GetValue()
				}
			}
		}
	}
	return found
}

func metricsOfMPIJobs(t *testing.T) (*jobMetrics, *prometheus.Registry) {
	t.Helper()
	metrics, registry := newJobMetrics(job.KindMPIJob), prometheus.NewRegistry()
	if err := metrics.register(registry); err != nil {
		t.Fatal(err)
	}
	return metrics, registry
}

func at(after time.Duration) *metav1.Time { return &metav1.Time{Time: submitted.Add(after)} }

// Starts take less than a second or two, and a status has whole seconds.
func TestStartDurationsHaveMilliseconds(t *testing.T) {
	metrics, registry := metricsOfMPIJobs(t)
	j := &job.Job{Kind: job.KindMPIJob, Namespace: "team", UID: "a"}
	previous := diagnosis.Previous{Submitted: *at(0)}
	admitted := []training.TimelineEntry{{Step: training.StepAdmitted, Time: *at(0)}}
	metrics.starts.observe("a", previous, &diagnosis.Verdict{}, submitted.Add(100*time.Millisecond))
	metrics.starts.observe("a", previous, &diagnosis.Verdict{Progress: training.Progress{Timeline: admitted}}, submitted.Add(200*time.Millisecond))
	started := &diagnosis.Verdict{Progress: training.Progress{Timeline: admitted}, StartTime: at(time.Second)}
	metrics.starts.observe("a", previous, started, submitted.Add(850*time.Millisecond))
	metrics.starts.observe("a", previous, started, submitted.Add(3*time.Second))
	metrics.note("", j, previous, started)
	found := series(t, registry, "team")
	for name, want := range map[string]float64{"time_to_start_seconds": 0.75, "gang_scheduling_duration_seconds": 0.65} {
		if got := found[metricName(job.KindMPIJob, name)]; got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	if len(metrics.starts.jobs) != 0 {
		t.Errorf("%d stopwatches are left", len(metrics.starts.jobs))
	}
}

// Who begins to lead while a job starts has not seen its first steps.
func TestStartsSeenInPart(t *testing.T) {
	metrics, registry := metricsOfMPIJobs(t)
	previous := diagnosis.Previous{Submitted: *at(0), Progress: training.Progress{
		Phase: training.PhasePending, Timeline: []training.TimelineEntry{{Step: training.StepAdmitted, Time: *at(time.Second)}}}}
	started := &diagnosis.Verdict{Progress: previous.Progress, StartTime: at(4 * time.Second)}
	metrics.starts.observe("a", previous, started, submitted.Add(4200*time.Millisecond))
	metrics.note("", &job.Job{Kind: job.KindMPIJob, Namespace: "team", UID: "a"}, previous, started)
	found := series(t, registry, "team")
	if toStart, gang := found[metricName(job.KindMPIJob, "time_to_start_seconds")], found[metricName(job.KindMPIJob, "gang_scheduling_duration_seconds")]; toStart != 4 || gang != 3 {
		t.Errorf("%g s since submit, %g s since admission", toStart, gang)
	}
}

// A user's image can write any report.
func TestOnlyPlausibleReportsAreMeasured(t *testing.T) {
	for name, test := range map[string]struct {
		connect, init float64
		want          int
	}{
		"plausible":           {0.2, 0.3, 2},
		"longer than the job": {1e300, 1e9, 0},
		"before it began":     {-5, -1, 0},
		"one of them":         {0.2, 3600, 1},
	} {
		metrics, registry := metricsOfMPIJobs(t)
		report := &protocol.Report{Hosts: protocol.Hosts{Reached: 2}, Timings: protocol.Timings{Connect: test.connect, Init: test.init}}
		previous := diagnosis.Previous{Progress: training.Progress{Phase: training.PhaseRunning}, Submitted: *at(0), StartTime: at(0)}
		metrics.note("", &job.Job{Kind: job.KindMPIJob, Namespace: "team", UID: "a"}, previous,
			&diagnosis.Verdict{Progress: training.Progress{Phase: training.PhaseSucceeded}, StartTime: at(0), CompletionTime: at(time.Minute), Report: report})
		found, measured := series(t, registry, "team"), 0
		for _, name := range []string{"mpi_init_duration_seconds", "ssh_connect_duration_seconds"} {
			if _, there := found[metricName(job.KindMPIJob, name)]; there {
				measured++
			}
		}
		if measured != test.want {
			t.Errorf("%s: %d of the values count, want %d", name, measured, test.want)
		}
	}
}

func TestSeriesOfDeletedNamespacesGo(t *testing.T) {
	metrics, registry := metricsOfMPIJobs(t)
	for _, namespace := range []string{"team", "other"} {
		metrics.note("", &job.Job{Kind: job.KindMPIJob, Namespace: namespace, UID: "a"}, diagnosis.Previous{},
			&diagnosis.Verdict{Progress: training.Progress{Phase: training.PhaseFailed, FailureReason: training.FailureWorker}, StartTime: at(0), CompletionTime: at(time.Minute)})
	}
	metrics.forget("team")
	if left := series(t, registry, "team"); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
	if others := series(t, registry, "other"); len(others) < 3 {
		t.Errorf("of the other namespace only these are left: %v", others)
	}
}

func TestIsQueued(t *testing.T) {
	for name, test := range map[string]struct {
		previous diagnosis.Previous
		want     bool
	}{
		"new":                   {diagnosis.Previous{}, false},
		"waits for places":      {diagnosis.Previous{Progress: training.Progress{Phase: training.PhasePending}}, true},
		"held by a queue":       {diagnosis.Previous{Progress: training.Progress{Phase: training.PhasePending}, Suspended: true, Queued: true}, true},
		"suspended by its user": {diagnosis.Previous{Progress: training.Progress{Phase: training.PhasePending}, Suspended: true}, false},
		"has its places":        {diagnosis.Previous{Progress: training.Progress{Phase: training.PhasePending}, StartTime: at(0)}, false},
		"runs":                  {diagnosis.Previous{Progress: training.Progress{Phase: training.PhaseRunning}, StartTime: at(0)}, false},
		"failed without a pod":  {diagnosis.Previous{Progress: training.Progress{Phase: training.PhaseFailed}}, false},
	} {
		if got := isQueued(test.previous); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
