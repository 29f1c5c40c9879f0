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
	// quotaPause is how often a quota is tried again.
	quotaRetryPause = 500 * time.Millisecond
	// reasonQuota surfaces when a ResourceQuota refuses a part of a job.
	reasonQuota = "WaitingForQuota"
)

// waitForQuota is the verdict on a job that a quota refuses a part of. Others may
// free it. Of jobs that wait for the same quota the oldest keeps what it has and
// tries again; the others delete their pods and wait, so that no two of them hold
// what the other needs.
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
	// Whoever may try again is not failed before it is refused again.
	if v.observed.Now.Sub(wait.Since.Time) >= v.observed.Patience.Quota && (isRefused || v.observed.OlderWaits) {
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

// yields tells whether the job gives up its pods to an older one that waits for the
// same quota, or is about to have them again.
func (v *view) yieldsToOlderJob(previous Previous) bool {
	// A launcher that has completed had all of its workers.
	if previous.QuotaWait == nil || v.heldByQueue() || v.launcherSucceeded() {
		return false
	}
	return v.observed.OlderWaits && !v.allCreated() || v.isDeletingPods()
}

// isEnding tells whether a pod of the job is being deleted.
func (v *view) isDeletingPods() bool {
	return slices.ContainsFunc(slices.Concat(v.observed.Launchers, v.observed.Workers), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

func (v *view) quotaFailure(wait *training.QuotaWait) *jobFailure {
	return &jobFailure{reason: training.FailureResourceQuota, at: v.observed.Now, message: fmt.Sprintf(
		"%s. The quota was exceeded for %s. Wait until other jobs of the namespace have finished, request less, or have the quota raised: kubectl describe quota -n %s.",
		wait.Message, v.observed.Patience.Quota, v.job.Namespace)}
}
