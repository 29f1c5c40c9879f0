// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
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

// gpuJob is a job of two workers with four GPUs each, in a queue.
func gpuJob(uid types.UID, queue string) *job.Job {
	gpus := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
	worker := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: gpus}}}}}
	return &job.Job{Kind: job.KindMPIJob, Namespace: "team", UID: uid, Queue: queue, Worker: job.Role{Replicas: 2, Template: worker}}
}

func reached(steps map[training.TimelineStep]time.Duration) training.Progress {
	progress := training.Progress{Phase: training.PhaseSucceeded}
	for step, after := range steps {
		progress.Timeline = append(progress.Timeline, training.TimelineEntry{Step: step, Time: *at(after)})
	}
	return progress
}

// values are the values of a metric by its labels but the namespace.
func values(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				if label.GetName() != "namespace" {
					labels = append(labels, label.GetValue())
				}
			}
			if family.GetName() == metricName(job.KindMPIJob, name) {
				found[strings.Join(labels, " ")] = metric.GetHistogram().GetSampleSum() + metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return found
}

func TestQueueTimeRestartsAndGPUSeconds(t *testing.T) {
	metrics, registry := metricsOfMPIJobs(t)
	j, previous := gpuJob("a", "main"), diagnosis.Previous{Submitted: *at(0)}
	admitted := &diagnosis.Verdict{Progress: reached(map[training.TimelineStep]time.Duration{training.StepAdmitted: 30 * time.Second})}
	metrics.note("", j, previous, admitted)
	previous.Progress = admitted.Progress
	previous.Phase = training.PhasePending
	metrics.note("", j, previous, admitted)
	restarted := &diagnosis.Verdict{Progress: training.Progress{Phase: training.PhasePending, Timeline: previous.Timeline, Restart: &training.Restart{Count: 1, Reason: training.FailureWorker}}}
	metrics.note("", j, previous, restarted)
	previous.Progress = restarted.Progress
	metrics.note("", j, previous, restarted)
	ended := &diagnosis.Verdict{CompletionTime: at(time.Minute), Progress: reached(map[training.TimelineStep]time.Duration{
		training.StepAdmitted: 30 * time.Second, training.StepScheduled: 40 * time.Second, training.StepWorkersReached: 45 * time.Second, training.StepFinished: time.Minute,
	})}
	metrics.note("", j, previous, ended)
	for name, want := range map[string]map[string]float64{
		"queue_duration_seconds": {"main": 30},
		"restarts_total":         {"WorkerFailed": 1},
		"gpu_seconds_total":      {"main waiting": 320, "main idle": 40, "main running": 120},
	} {
		if diff := cmp.Diff(want, values(t, registry, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	metrics.forget("team")
	if left := series(t, registry, "team"); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
}

// Users can write any name of a queue into a job.
func TestQueuesAreLimited(t *testing.T) {
	var names queueNames
	for i := range maxQueues {
		if want, got := strconv.Itoa(i), names.label("team", strconv.Itoa(i)); got != want {
			t.Errorf("queue %s is named %s", want, got)
		}
	}
	for queue, want := range map[string]string{"": "", "7": "7", "x": otherQueue, "y": otherQueue} {
		if got := names.label("team", queue); got != want {
			t.Errorf("queue %q is named %q, want %q", queue, got, want)
		}
	}
	if got := names.label("other-team", "x"); got != "x" {
		t.Errorf("the limit of one namespace holds in another: %s", got)
	}
	names.forget("team")
	if got := names.label("team", "x"); got != "x" {
		t.Errorf("a deleted namespace is remembered: %s", got)
	}
}

func gpuMPIJob(name string, change func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
	mpiJob := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), Labels: map[string]string{training.LabelQueue: "main"}},
		Spec: v2beta1.MPIJobSpec{MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {}, v2beta1.MPIReplicaTypeWorker: {Replicas: new(int32(2)), Template: gpuJob("", "").Worker.Template},
		}},
	}
	mpiJob.Status.Phase = training.PhasePending
	change(mpiJob)
	return mpiJob
}

// The GPUs of every unfinished job count in the state that the job is in.
func TestGPUGauge(t *testing.T) {
	timeline := func(steps map[training.TimelineStep]time.Duration) func(*v2beta1.MPIJob) {
		return func(mpiJob *v2beta1.MPIJob) { mpiJob.Status.Timeline = reached(steps).Timeline }
	}
	objects := []client.Object{
		gpuMPIJob("waits", timeline(nil)),
		gpuMPIJob("waits-too", timeline(nil)),
		gpuMPIJob("pulls", timeline(map[training.TimelineStep]time.Duration{training.StepScheduled: 1})),
		gpuMPIJob("runs", timeline(map[training.TimelineStep]time.Duration{training.StepScheduled: 1, training.StepWorkersReached: 2})),
		gpuMPIJob("finished", func(mpiJob *v2beta1.MPIJob) { mpiJob.Status.Phase = training.PhaseSucceeded }),
		gpuMPIJob("suspended", func(mpiJob *v2beta1.MPIJob) {
			mpiJob.Status.Conditions = []v2beta1.JobCondition{{Type: v2beta1.JobSuspended, Status: corev1.ConditionTrue, Reason: "MPIJobSuspended"}}
		}),
	}
	api := clientfake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).Build()
	metrics, registry := newJobMetrics(job.KindMPIJob), prometheus.NewRegistry()
	registry.MustRegister(newJobGauges(api, mpiJobs{}, metrics))
	want := map[string]float64{"main waiting": 16, "main idle": 8, "main running": 8}
	if diff := cmp.Diff(want, values(t, registry, "gpus")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, object := range objects[1:] {
		if err := api.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string]float64{"main waiting": 8}, values(t, registry, "gpus")); diff != "" {
		t.Errorf("after jobs were deleted (-want +got):\n%s", diff)
	}
	if len(metrics.demands.jobs) != 1 {
		t.Errorf("%d jobs are remembered", len(metrics.demands.jobs))
	}
}
