// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	podusage "github.com/trireme-mpi/trireme/internal/kube/usage"
)

// jobUsage is what one job requests, uses, and leaves idle.
type jobUsage struct {
	job *view
	// requests is the total of its requests; nil if it is not known, because the runtime
	// was deleted.
	requests corev1.ResourceList
	// used is the current usage of its pods; nil without the metrics API.
	used corev1.ResourceList
	// waited is how long its pods have waited, or still wait, for nodes.
	waited time.Duration
	// held is how long its pods have had nodes before the training started.
	held time.Duration
}

func (u *jobUsage) gpus() *resource.Quantity { return job.GPUs(u.requests) }

// idleGPUSeconds returns for how long GPUs were allocated before the training started.
func (u *jobUsage) idleGPUSeconds() float64 {
	return u.gpus().AsApproximateFloat64() * u.held.Seconds()
}

// queuedGPUSeconds returns for how long GPUs were requested but not allocated. Other
// jobs may have used them.
func (u *jobUsage) queuedGPUSeconds() float64 {
	return u.gpus().AsApproximateFloat64() * u.waited.Seconds()
}

// usageOf returns the usage of one job. made is nil if its runtime was deleted.
func usageOf(j *view, model *job.Job, used corev1.ResourceList, now time.Time) jobUsage {
	usage := jobUsage{job: j, used: used, waited: waitedFor(j, now), held: heldIdle(j, now)}
	if model != nil {
		usage.requests = requestsOf(model)
	}
	return usage
}

// requestsOf returns the total requests of the launcher and the workers.
func requestsOf(model *job.Job) corev1.ResourceList {
	sum := corev1.ResourceList{}
	add(sum, job.Requests(&model.Launcher.Template.Spec), model.Launcher.Replicas)
	add(sum, job.Requests(&model.Worker.Template.Spec), model.Worker.Replicas)
	return sum
}

// waitedFor returns the time from Submitted to Scheduled. It increases until every pod
// has a node or the job has finished, and includes the time in a queue or suspended.
func waitedFor(j *view, now time.Time) time.Duration {
	submitted, known := j.Reached(training.StepSubmitted)
	if !known {
		submitted = j.Submitted.Time
	}
	return between(submitted, firstOf(j, now, training.StepScheduled, training.StepFinished))
}

// heldIdle returns the time from Scheduled to FirstRankUp: every pod has a node, and no
// MPI process is running yet. FirstRankUp is known only once the launcher has finished;
// until then WorkersReached, the start of mpirun, is used instead. The time increases
// until one of them is reached or the job has finished.
func heldIdle(j *view, now time.Time) time.Duration {
	scheduled, known := j.Reached(training.StepScheduled)
	if !known {
		return 0
	}
	return between(scheduled, firstOf(j, now, training.StepFirstRankUp, training.StepWorkersReached, training.StepFinished))
}

// firstOf returns the time of the first of these steps that was reached, else now.
func firstOf(j *view, now time.Time, steps ...training.TimelineStep) time.Time {
	for _, step := range steps {
		if at, reached := j.Reached(step); reached {
			return at
		}
	}
	return now
}

func between(begin, end time.Time) time.Duration { return max(end.Sub(begin), 0) }

// totalOf returns the total of jobs. Requests and usage do not include finished jobs;
// waiting times do.
func totalOf(all []jobUsage) (total jobTotal) {
	total.requests, total.used = corev1.ResourceList{}, corev1.ResourceList{}
	for i := range all {
		usage := &all[i]
		total.waited += usage.waited
		total.idleGPUSeconds += usage.idleGPUSeconds()
		total.queuedGPUSeconds += usage.queuedGPUSeconds()
		if usage.job.Finished() {
			continue
		}
		add(total.requests, usage.requests, 1)
		add(total.used, usage.used, 1)
	}
	return total
}

// jobTotal is the sum of several jobs.
type jobTotal struct {
	requests, used                   corev1.ResourceList
	waited                           time.Duration
	idleGPUSeconds, queuedGPUSeconds float64
}

// measured returns the usage of the pods of each job, by jobKey.
func measured(pods []metricsv1beta1.PodMetrics) map[string]corev1.ResourceList {
	totals := map[string]corev1.ResourceList{}
	for i := range pods {
		labels := pods[i].Labels
		key := jobKey(labels[training.LabelJobType], pods[i].Namespace, labels[training.LabelJobName])
		if totals[key] == nil {
			totals[key] = corev1.ResourceList{}
		}
		add(totals[key], podusage.Sum(&pods[i]), 1)
	}
	return totals
}

func jobKey(jobType, namespace, name string) string {
	return strings.Join([]string{jobType, namespace, name}, "/")
}
