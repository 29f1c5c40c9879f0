// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// maxNoStatus is how long a new job may have no status.
const maxNoStatus = 15 * time.Second

// obstacles are condition reasons that only a user can resolve.
var obstacles = []string{"NoGangScheduler", "JobSetNotInstalled", "KubernetesTooOld", "RuntimeNotFound", "RuntimeSnapshotLost", "RuntimeNotStored", "NameTaken"}

// status reports what the job's own status says.
func status(facts *Facts) []Finding {
	switch {
	case facts.OfMPIOperator:
		return []Finding{{
			Rank: Note, Title: "mpi-operator runs the job", Cause: "Trireme does not check jobs of mpi-operator.",
			Object: resourceOf(facts.Kind) + "/" + facts.Name, Fix: fmt.Sprintf("kubectl describe mpijob %s -n %s", facts.Name, facts.Namespace), Documentation: pageJobs,
		}}
	case facts.hasFailed():
		return []Finding{facts.failure()}
	case facts.hasSucceeded():
		return nil
	case facts.Previous.Phase == "":
		return facts.noStatus()
	case facts.Previous.Suspended && !facts.Previous.Queued && facts.Job != nil && facts.Job.Suspended && facts.Job.Queue == "":
		return []Finding{facts.suspension()}
	default:
		return facts.waiting()
	}
}

func (facts *Facts) failure() Finding {
	return Finding{
		Rank: Cause, Title: "The job failed: " + string(facts.Previous.FailureReason), Cause: facts.Previous.FailureMessage,
		Object: resourceOf(facts.Kind) + "/" + facts.Name, Fix: facts.failureFix(), Documentation: pageFailures,
	}
}

func (facts *Facts) failureFix() string {
	return facts.fixFor(facts.Previous.FailureReason, facts.Previous.FailureCause)
}

// fixFor is where to look first, by reason. The message itself has the advice.
func (facts *Facts) fixFor(reason training.FailureReason, cause string) string {
	command := fmt.Sprintf("odh %s logs %s -n %s", resourceOf(facts.Kind), facts.Name, facts.Namespace)
	if diagnosis.IsImageCause(cause) {
		return "Correct the image's name or tag, or its imagePullSecrets, and recreate the job"
	}
	switch reason {
	case training.FailureGangSchedulingTimeout:
		return "kubectl describe nodes"
	case training.FailureResourceQuota:
		return "kubectl describe resourcequota -n " + facts.Namespace
	case training.FailureSSHConnection:
		return "kubectl get networkpolicy -n " + facts.Namespace
	case training.FailureWorker:
		return command + " --all"
	default:
		return command
	}
}

func (facts *Facts) noStatus() []Finding {
	age := facts.Now.Sub(facts.Previous.Submitted.Time)
	if facts.elsewhere() {
		return []Finding{{
			Rank: Note, Title: "Another controller manages the job", Cause: fmt.Sprintf("managedBy is %s, so the operator of this cluster ignores the job.", facts.Job.ManagedBy),
			Object: resourceOf(facts.Kind) + "/" + facts.Name, Documentation: pageJobs,
		}}
	}
	if age < maxNoStatus {
		return nil
	}
	return []Finding{{
		Rank: Certain, Title: "The operator has not processed the job", Cause: fmt.Sprintf("The job was submitted %s ago and has no status.", age.Round(time.Second)),
		Object: "deployment/" + operatorName, Fix: facts.operatorLog(), Documentation: pageOperator, waits: &Waiting{Cause: WaitOperator, Since: &facts.Previous.Submitted},
	}}
}

func (facts *Facts) suspension() Finding {
	patch := `{"spec":{"suspend":false}}`
	if facts.Kind == job.KindMPIJob {
		patch = `{"spec":{"runPolicy":{"suspend":false}}}`
	}
	return Finding{
		Rank: Certain, Title: "The job is suspended", Cause: "It has no pods until it is resumed.", Object: resourceOf(facts.Kind) + "/" + facts.Name,
		Fix: fmt.Sprintf("kubectl patch %s %s -n %s --type merge -p '%s'", resourceOf(facts.Kind), facts.Name, facts.Namespace, patch), Documentation: pageJobs,
		waits: &Waiting{Cause: WaitSuspended, Since: facts.conditionSince(v2alpha1.ConditionSuspended)},
	}
}

// waiting is the condition that the job waits for. It blocks the job only if a user
// must act: everything else has a check of its own.
func (facts *Facts) waiting() []Finding {
	if facts.Previous.Phase == training.PhasePending && facts.Previous.QuotaWait != nil {
		return []Finding{facts.quotaWait()}
	}
	var findings []Finding
	if facts.Previous.Phase == training.PhasePending && facts.Previous.Restart != nil {
		findings = append(findings, facts.restart())
	}
	condition := facts.waitsFor()
	if condition == nil || len(findings) > 0 && !slices.Contains(obstacles, condition.Reason) {
		return findings
	}
	finding := Finding{Rank: Note, Title: "The job is waiting", Cause: condition.Message, Object: resourceOf(facts.Kind) + "/" + facts.Name, Documentation: pageFailures}
	if slices.Contains(obstacles, condition.Reason) {
		finding.Rank, finding.Title = Certain, "The operator cannot start the job: "+condition.Reason
		finding.Fix, finding.waits = facts.obstacleFix(condition.Reason), &Waiting{Cause: WaitBlocked, Since: since(condition)}
	}
	return append(findings, finding)
}

// quotaWait: the API server has named the quota, so it is certain.
func (facts *Facts) quotaWait() Finding {
	wait, object := facts.Previous.QuotaWait, "resourcequota"
	if wait.Name != "" {
		object += "/" + wait.Name
	}
	return Finding{
		Rank: Certain, Title: "The job is waiting for quota", Cause: wait.Message, Object: object, Documentation: pageFailures,
		Fix:   "Wait for other jobs to finish, request less, or ask for a larger quota; see kubectl describe resourcequota -n " + facts.Namespace,
		waits: &Waiting{Cause: WaitQuota, Since: &wait.Since},
	}
}

// restart reports the failure before the restart, because it may happen again.
func (facts *Facts) restart() Finding {
	restart := facts.Previous.Restart
	finding := Finding{
		Rank: Likely, Title: fmt.Sprintf("The job failed and is restarted (restart %d): %s", restart.Count, restart.Reason),
		Cause:  sentences(restart.Message, "The restart is due at "+restart.DueTime.UTC().Format(time.RFC3339)),
		Object: resourceOf(facts.Kind) + "/" + facts.Name, Documentation: pageFailures, Fix: facts.fixFor(restart.Reason, ""),
	}
	if restart.DueTime.After(facts.Now) {
		finding.waits = &Waiting{Cause: WaitRestart, MayStart: &restart.DueTime}
	}
	return finding
}

func (facts *Facts) obstacleFix(reason string) string {
	switch reason {
	case "RuntimeNotFound":
		return "odh runtime list -n " + facts.Namespace
	case "RuntimeSnapshotLost", "RuntimeNotStored":
		return fmt.Sprintf("kubectl get controllerrevisions,resourcequotas -n %s", facts.Namespace)
	case "NoGangScheduler":
		return "Install the scheduler that the runtime requests, or remove podGroupPolicy from the runtime"
	case "JobSetNotInstalled":
		return "Ask a cluster administrator to install the JobSet CRD (jobset.x-k8s.io); its controller is not needed"
	case "KubernetesTooOld":
		return "Ask a cluster administrator to upgrade Kubernetes"
	default:
		return fmt.Sprintf("kubectl get all,controllerrevisions -n %s -l %s=%s", facts.Namespace, training.LabelJobName, facts.Name)
	}
}

// maxUnexplained is how long a job may wait without a finding that explains it.
const maxUnexplained = time.Minute

// explainWaiting raises the rank of what a pending job waits for, if it has waited for
// long and no check has found a cause.
func explainWaiting(facts *Facts, findings []Finding) {
	if facts.Previous.Phase != training.PhasePending || facts.Now.Sub(facts.Previous.Submitted.Time) < maxUnexplained ||
		slices.ContainsFunc(findings, func(finding Finding) bool { return finding.Rank.Blocks() }) {
		return
	}
	for i := range findings {
		if finding := &findings[i]; finding.Check == checkStatus && finding.Rank == Note {
			finding.Rank, finding.Title = Likely, "The job is waiting, and no check found the cause"
			finding.Fix = fmt.Sprintf("odh %s describe %s -n %s", resourceOf(facts.Kind), facts.Name, facts.Namespace)
		}
	}
}

// waitsFor is the condition that a pending job waits for.
func (facts *Facts) waitsFor() *metav1.Condition {
	if facts.Previous.Phase != training.PhasePending {
		return nil
	}
	if pending := meta.FindStatusCondition(facts.Conditions, string(v2beta1.JobPending)); pending != nil {
		if pending.Status == metav1.ConditionTrue {
			return pending
		}
		return nil
	}
	for _, conditionType := range []string{v2alpha1.ConditionGangScheduling, v2alpha1.ConditionWorkersReady, v2alpha1.ConditionLauncherReady, v2alpha1.ConditionTrainingComplete} {
		if condition := meta.FindStatusCondition(facts.Conditions, conditionType); condition != nil && condition.Status != metav1.ConditionTrue {
			return condition
		}
	}
	return nil
}

// since is when a condition began to hold; nil if it does not say.
func since(condition *metav1.Condition) *metav1.Time {
	if condition == nil || condition.LastTransitionTime.IsZero() {
		return nil
	}
	return &condition.LastTransitionTime
}

// conditionSince is when a condition of the job became true; nil if it is not.
func (facts *Facts) conditionSince(conditionType string) *metav1.Time {
	if condition := meta.FindStatusCondition(facts.Conditions, conditionType); condition != nil && condition.Status == metav1.ConditionTrue {
		return since(condition)
	}
	return nil
}
