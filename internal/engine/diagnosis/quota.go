// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

const (
	// quotaRetryPause is how long a job waits before it tries again to create its objects.
	quotaRetryPause = 500 * time.Millisecond
	// reasonQuota is the reason of conditions while a ResourceQuota is exceeded.
	reasonQuota = "WaitingForQuota"
)

// waitForQuota is the verdict on a job that exceeds a ResourceQuota. Other jobs may free
// the quota. Of all jobs that wait for it, the oldest keeps its pods and tries again;
// the others delete their pods and wait, so that no two jobs block each other.
func (v *view) waitForQuota(verdict *Verdict, previous Previous) {
	wait, refused := previous.QuotaWait, v.observed.Refusal
	isRefused := refused != nil && refused.Quota
	if isRefused {
		since := metav1.NewTime(v.observed.Now.Truncate(time.Second))
		if wait != nil {
			since = wait.Since
		}
		wait = &training.QuotaWait{Name: refused.QuotaName, Since: since, Message: fmt.Sprintf("%s could not be created: %s", refused.Object, withoutPeriod(refused.Message))}
	}
	if wait == nil || !isRefused && v.allCreated() && !v.isDeletingPods() {
		return
	}
	// A job that may try again fails only after it was refused again.
	if v.observed.Now.Sub(wait.Since.Time) >= v.observed.Timeouts.Quota && (isRefused || v.observed.OlderWaits) {
		v.fail(verdict, v.quotaFailure(wait))
		return
	}
	verdict.QuotaWait = wait
	condition := Condition{Reason: reasonQuota, Message: fmt.Sprintf("Waiting for quota: %s", wait.Message)}
	verdict.Waiting, verdict.Gang = condition, condition
	if v.observed.OlderWaits {
		verdict.Stage = plan.Held
	}
	verdict.checkIn(quotaRetryPause)
}

// yieldsToOlderJob reports whether the job deletes its pods because an older job waits
// for the same quota, or still has pods that are being deleted.
func (v *view) yieldsToOlderJob(previous Previous) bool {
	// A launcher that has completed does not need the quota any more.
	if previous.QuotaWait == nil || v.heldByQueue() || v.launcherSucceeded() {
		return false
	}
	return v.observed.OlderWaits && !v.allCreated() || v.isDeletingPods()
}

func (v *view) isDeletingPods() bool {
	return slices.ContainsFunc(slices.Concat(v.observed.Launchers, v.observed.Workers), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

func (v *view) quotaFailure(wait *training.QuotaWait) *jobFailure {
	return &jobFailure{reason: training.FailureResourceQuota, at: v.observed.Now, message: fmt.Sprintf(
		"%s. The quota was exceeded for %s. Wait until other jobs of the namespace have finished, request less, or have the quota raised: kubectl describe quota -n %s.",
		wait.Message, v.observed.Timeouts.Quota, v.job.Namespace)}
}
