// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/accounting"
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
	periods := j.Periods(now)
	usage := jobUsage{job: j, used: used, waited: periods[accounting.Waiting].Length(), held: periods[accounting.Idle].Length()}
	if model != nil {
		usage.requests = model.TotalRequests()
	}
	return usage
}

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
