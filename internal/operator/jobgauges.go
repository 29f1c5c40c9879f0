// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/accounting"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// jobGauges counts jobs, and the GPUs that they request, whenever metrics are read. A
// counter in memory would be wrong after a restart of the operator.
type jobGauges struct {
	reader                client.Reader
	kind                  kind
	metrics               *jobMetrics
	running, queued, gpus *prometheus.Desc
}

// newJobGauges keeps the suffix _total for MPIJobs, although they are gauges, because
// existing dashboards use those names.
func newJobGauges(reader client.Reader, kind kind, metrics *jobMetrics) *jobGauges {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(metricName(kind.name(), name+kind.name().Traits().GaugeSuffix), help, []string{"namespace"}, nil)
	}
	return &jobGauges{
		reader: reader, kind: kind, metrics: metrics,
		running: describe("running", "Number of running jobs."), queued: describe("queued", "Number of jobs that wait for a queue, for a quota or for their pods to be scheduled."),
		gpus: prometheus.NewDesc(metricName(kind.name(), "gpus"),
			"Number of GPUs that unfinished jobs request, by what the job does: waiting for nodes, idle (it has nodes, and its ranks have not started) or running. Jobs that a user suspended do not count.",
			[]string{"namespace", "queue", "state"}, nil),
	}
}

// MetricType is the type of all metrics of this collector.
func (jg *jobGauges) MetricType() string { return "gauge" }

func (jg *jobGauges) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- jg.running
	descriptions <- jg.queued
	descriptions <- jg.gpus
}

// gpuSeries is one series of the GPUs that jobs request.
type gpuSeries struct {
	namespace, queue string
	state            accounting.State
}

func (jg *jobGauges) Collect(found chan<- prometheus.Metric) {
	running, queued, gpus, seen := map[string]int{}, map[string]int{}, map[gpuSeries]float64{}, sets.Set[types.UID]{}
	count := func(object client.Object, previous diagnosis.Previous) {
		seen.Insert(object.GetUID())
		switch {
		case previous.Phase == training.PhaseRunning:
			running[object.GetNamespace()]++
		case isQueued(previous):
			queued[object.GetNamespace()]++
		}
		if number := jg.metrics.demands.of(jg.kind, object); number > 0 && requestsNow(previous) {
			queue := jg.metrics.queues.label(object.GetNamespace(), object.GetLabels()[training.LabelQueue])
			gpus[gpuSeries{object.GetNamespace(), queue, accounting.Now(previous.Timeline)}] += number
		}
	}
	if err := jg.each(count); err != nil {
		found <- prometheus.NewInvalidMetric(jg.running, err)
		return
	}
	jg.metrics.demands.keep(seen)
	for namespace, number := range running {
		found <- prometheus.MustNewConstMetric(jg.running, prometheus.GaugeValue, float64(number), namespace)
	}
	for namespace, number := range queued {
		found <- prometheus.MustNewConstMetric(jg.queued, prometheus.GaugeValue, float64(number), namespace)
	}
	for series, number := range gpus {
		found <- prometheus.MustNewConstMetric(jg.gpus, prometheus.GaugeValue, number, series.namespace, series.queue, string(series.state))
	}
}

// isQueued reports whether a job waits for resources. A job that its user suspended does
// not, nor does a job whose pods are all scheduled.
func isQueued(previous diagnosis.Previous) bool {
	return previous.Phase == training.PhasePending && previous.StartTime == nil && (!previous.Suspended || previous.Queued)
}

// requestsNow reports whether a job has or wants resources.
func requestsNow(previous diagnosis.Previous) bool {
	return previous.Phase != "" && !previous.Finished() && (!previous.Suspended || previous.Queued)
}

// each calls visit for every job of the kind in the cache.
func (jg *jobGauges) each(visit func(object client.Object, previous diagnosis.Previous)) error {
	if jg.kind.name().Traits().IsWorkload && !jg.kind.hasWorkloads() {
		return nil
	}
	// The list is large and only read: it is not copied.
	list := jg.kind.emptyList()
	if err := jg.reader.List(context.Background(), list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for _, object := range jg.kind.items(list) {
		if jg.kind.isForeign(object) {
			continue
		}
		visit(object, jg.kind.previous(object))
	}
	return nil
}

// demands are the GPUs that jobs request, by UID. They do not change while a job has
// pods, and to compute them takes longer than the rest of a scrape.
type demands struct {
	mutex sync.Mutex
	jobs  map[types.UID]float64
}

// put stores what a job requests. A job whose runtime is not known has no containers yet.
func (d *demands) put(j *job.Job) float64 {
	if len(j.Worker.Template.Spec.Containers) == 0 && len(j.Launcher.Template.Spec.Containers) == 0 {
		return 0
	}
	gpus := job.GPUs(j.TotalRequests()).AsApproximateFloat64()
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.jobs == nil {
		d.jobs = map[types.UID]float64{}
	}
	d.jobs[j.UID] = gpus
	return gpus
}

// of returns how many GPUs a job requests; 0 if it is not known yet. The leader knows it
// of every job that it has reconciled.
func (d *demands) of(kind kind, object client.Object) float64 {
	d.mutex.Lock()
	gpus, known := d.jobs[object.GetUID()]
	d.mutex.Unlock()
	if known {
		return gpus
	}
	if j := kind.known(object); j != nil {
		return d.put(j)
	}
	return 0
}

// keep forgets the jobs that do not exist any more.
func (d *demands) keep(existing sets.Set[types.UID]) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for uid := range d.jobs {
		if !existing.Has(uid) {
			delete(d.jobs, uid)
		}
	}
}

const (
	// maxQueues limits the values of the label queue for each namespace: users can write
	// any name into a job.
	maxQueues  = 20
	otherQueue = "other"
)

// queueNames are the queues that metrics name, by namespace.
type queueNames struct {
	mutex sync.Mutex
	named map[string]sets.Set[string]
}

// label is the value of the label queue: the name of the queue, empty for a job without
// one, and other for queues beyond the limit.
func (q *queueNames) label(namespace, queue string) string {
	if queue == "" {
		return ""
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.named == nil {
		q.named = map[string]sets.Set[string]{}
	}
	if q.named[namespace] == nil {
		q.named[namespace] = sets.Set[string]{}
	}
	names := q.named[namespace]
	if !names.Has(queue) && names.Len() >= maxQueues {
		return otherQueue
	}
	names.Insert(queue)
	return queue
}

func (q *queueNames) forget(namespace string) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	delete(q.named, namespace)
}
