// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/accounting"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Periods returns for how long a job waited, was idle and ran, until now.
func (view *View) Periods(now time.Time) accounting.Periods {
	var finished time.Time
	if view.CompletionTime != nil {
		finished = view.CompletionTime.Time
	}
	return accounting.Of(view.Timeline, view.Submitted.Time, finished, now)
}

// Account is what reports need of a job. model is the job with all defaults. A job that a
// user has suspended has no periods while it is suspended.
func (view *View) Account(model *job.Job, now time.Time) accounting.Job {
	requests := model.TotalRequests()
	account := accounting.Job{
		Group:  accounting.Group{Namespace: view.GetNamespace(), User: view.GetAnnotations()[training.AnnotationCreatedBy], Queue: view.GetLabels()[training.LabelQueue]},
		Failed: view.Phase == training.PhaseFailed,
		GPUs:   job.GPUs(requests).AsApproximateFloat64(), CPUs: requests.Name(corev1.ResourceCPU, "").AsApproximateFloat64(),
		Periods: view.Periods(now),
	}
	if view.IsHeldByUser() {
		account.Periods = nil
	}
	return account
}

// IsHeldByUser tells whether a user has suspended the job.
func (view *View) IsHeldByUser() bool {
	return !view.Finished() && !view.Queued && (view.Suspend || view.Suspended)
}
