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

// unnoticed is how long the operator may take to look at a job.
const unnoticed = 15 * time.Second

// obstacles are what the operator waits for until somebody removes it.
var obstacles = []string{"NoGangScheduler", "JobSetNotInstalled", "KubernetesTooOld", "RuntimeNotFound", "RuntimeSnapshotLost", "RuntimeNotStored", "NameTaken"}

// status is what the operator knows.
func status(facts *Facts) []Finding {
	switch {
	case facts.hasFailed():
		return []Finding{facts.failure()}
	case facts.hasSucceeded():
		return nil
	case facts.Previous.Phase == "":
		return facts.notNoticed()
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
		return "Correct the image's name or tag, or its imagePullSecrets, and create the job anew"
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

func (facts *Facts) notNoticed() []Finding {
	age := facts.Now.Sub(facts.Previous.Submitted.Time)
	if facts.elsewhere() {
		return []Finding{{
			Rank: Note, Title: "The job is run by another", Cause: fmt.Sprintf("managedBy is %s, so this cluster's operator leaves it alone.", facts.Job.ManagedBy),
			Object: resourceOf(facts.Kind) + "/" + facts.Name, Documentation: pageJobs,
		}}
	}
	if age < unnoticed {
		return nil
	}
	return []Finding{{
		Rank: Certain, Title: "The operator has not looked at the job", Cause: fmt.Sprintf("The job was submitted %s ago and has no status.", age.Round(time.Second)),
		Object: "deployment/" + operatorName, Fix: facts.operatorLog(), Documentation: pageOperator,
	}}
}

func (facts *Facts) suspension() Finding {
	patch := `{"spec":{"suspend":false}}`
	if facts.Kind == job.KindMPIJob {
		patch = `{"spec":{"runPolicy":{"suspend":false}}}`
	}
	return Finding{
		Rank: Certain, Title: "The job is suspended", Cause: "It has no pods until somebody resumes it.", Object: resourceOf(facts.Kind) + "/" + facts.Name,
		Fix: fmt.Sprintf("kubectl patch %s %s -n %s --type merge -p '%s'", resourceOf(facts.Kind), facts.Name, facts.Namespace, patch), Documentation: pageJobs,
	}
}

// waiting is what the job waits for, in the operator's words. They are a finding of
// their own only if nobody but a person can help: everything else has a check.
func (facts *Facts) waiting() []Finding {
	if facts.Previous.Phase == training.PhasePending && facts.Previous.QuotaWait != nil {
		return []Finding{facts.quotaWait()}
	}
	var findings []Finding
	if facts.Previous.Phase == training.PhasePending && facts.Previous.Restart != nil {
		findings = append(findings, facts.restart())
	}
	answer := facts.waitsFor()
	if answer == nil || len(findings) > 0 && !slices.Contains(obstacles, answer.Reason) {
		return findings
	}
	finding := Finding{Rank: Note, Title: "The job waits", Cause: answer.Message, Object: resourceOf(facts.Kind) + "/" + facts.Name, Documentation: pageFailures}
	if slices.Contains(obstacles, answer.Reason) {
		finding.Rank, finding.Title = Certain, "The operator cannot start the job: "+answer.Reason
		finding.Fix = facts.obstacleFix(answer.Reason)
	}
	return append(findings, finding)
}

// quotaWait: the API server has named the quota, so there is no need to guess.
func (facts *Facts) quotaWait() Finding {
	wait, object := facts.Previous.QuotaWait, "resourcequota"
	if wait.Name != "" {
		object += "/" + wait.Name
	}
	return Finding{
		Rank: Certain, Title: "The job waits for quota", Cause: wait.Message, Object: object, Documentation: pageFailures,
		Fix: "Wait for other jobs to finish, request less, or have the quota raised; see kubectl describe resourcequota -n " + facts.Namespace,
	}
}

// restart: what failed before may fail again.
func (facts *Facts) restart() Finding {
	restart := facts.Previous.Restart
	return Finding{
		Rank: Likely, Title: fmt.Sprintf("The job failed and is restarted (restart %d): %s", restart.Count, restart.Reason), Cause: restart.Message,
		Object: resourceOf(facts.Kind) + "/" + facts.Name, Documentation: pageFailures, Fix: facts.fixFor(restart.Reason, ""),
	}
}

func (facts *Facts) obstacleFix(reason string) string {
	switch reason {
	case "RuntimeNotFound":
		return "odh runtime list -n " + facts.Namespace
	case "RuntimeSnapshotLost", "RuntimeNotStored":
		return fmt.Sprintf("kubectl get controllerrevisions,resourcequotas -n %s", facts.Namespace)
	case "NoGangScheduler":
		return "Install the scheduler that the runtime asks for, or take podGroupPolicy out of the runtime"
	case "JobSetNotInstalled":
		return "Have an administrator install the CRD of JobSet (jobset.x-k8s.io); its controller is not needed"
	case "KubernetesTooOld":
		return "Have an administrator upgrade the cluster"
	default:
		return fmt.Sprintf("kubectl get all,controllerrevisions -n %s -l %s=%s", facts.Namespace, training.LabelJobName, facts.Name)
	}
}

// unexplained is how long a job may wait for what no check explains.
const unexplained = time.Minute

// explainWaiting makes what a pending job waits for a finding of weight, if nothing
// else was found and it has waited for long.
func explainWaiting(facts *Facts, findings []Finding) {
	if facts.Previous.Phase != training.PhasePending || facts.Now.Sub(facts.Previous.Submitted.Time) < unexplained ||
		slices.ContainsFunc(findings, func(finding Finding) bool { return finding.Rank.Hinders() }) {
		return
	}
	for i := range findings {
		if finding := &findings[i]; finding.Check == "Status" && finding.Rank == Note {
			finding.Rank, finding.Title = Likely, "The job waits, and no check says why"
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
	for _, question := range []string{v2alpha1.ConditionGangScheduling, v2alpha1.ConditionWorkersReady, v2alpha1.ConditionLauncherReady, v2alpha1.ConditionTrainingComplete} {
		if answer := meta.FindStatusCondition(facts.Conditions, question); answer != nil && answer.Status != metav1.ConditionTrue {
			return answer
		}
	}
	return nil
}
