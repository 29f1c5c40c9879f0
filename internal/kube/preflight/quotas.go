package preflight

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/quota"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// leastWorkers of an MPIJob, where the operator is not configured otherwise.
const leastWorkers = 2

// quotas is what the namespace's quotas have too little of for the pods that are
// not there yet.
func quotas(facts *Facts) []Finding {
	switch {
	case facts.hasSucceeded():
		return nil
	case facts.Quotas.Unknown != "":
		return unknown("Quota", facts.Quotas.Unknown)
	case facts.Job == nil:
		return facts.fullQuotas()
	}
	demand := facts.missing()
	shortages := quota.Shortages(demand, facts.Quotas.Value)
	if demand.Workers.Count+demand.Launcher.Count == 0 || len(shortages) == 0 {
		return nil
	}
	asked, there := quota.Brief(shortages)
	who := "The job asks"
	if facts.Stored {
		who = "The pods that are not there yet ask"
	}
	finding := Finding{
		Rank: facts.rank(Certain, training.StepScheduled, training.FailureResourceQuota), Title: "The namespace's quota is too small",
		Cause:  fmt.Sprintf("%s for %s; quota %s leaves %s.", who, asked, shortages[0].Quota, there),
		Object: "resourcequota/" + shortages[0].Quota, Documentation: pageFailures,
	}
	finding.Fix = facts.quotaFix(demand)
	return []Finding{finding}
}

// missing is what the pods that are not there yet ask of the namespace.
func (facts *Facts) missing() *quota.Demand {
	least := int64(1)
	if facts.Kind == job.KindMPIJob {
		least = leastWorkers
	}
	demand := validation.Demand(facts.Job, &validation.Surroundings{LimitRanges: facts.LimitRanges.Value}, least)
	if facts.Stored {
		demand.Objects = nil
		demand.Workers.Count = max(demand.Workers.Count-int64(len(active(facts.podsOf(training.RoleWorker)))), 0)
		demand.Launcher.Count = max(demand.Launcher.Count-int64(len(active(facts.podsOf(training.RoleLauncher)))), 0)
	}
	return demand
}

func (facts *Facts) quotaFix(demand *quota.Demand) string {
	see := "kubectl describe resourcequota -n " + facts.Namespace
	if fitting := quota.FittingWorkers(demand, facts.Quotas.Value); fitting > 0 && !facts.Stored {
		return fmt.Sprintf("Ask for %s, wait for other jobs to end, or have the quota raised; see %s", count(int(fitting), "worker"), see)
	}
	return "Wait for other jobs to end, ask for less, or have the quota raised; see " + see
}

// fullQuotas are the quotas of a namespace that have no room for any pod, whatever
// it asks for.
func (facts *Facts) fullQuotas() (findings []Finding) {
	for i := range facts.Quotas.Value {
		full := &facts.Quotas.Value[i]
		for _, name := range job.ResourceNames(full.Spec.Hard) {
			hard, used := full.Spec.Hard[name], full.Status.Used[name]
			if !countsPods(name) || used.Cmp(hard) < 0 {
				continue
			}
			findings = append(findings, Finding{
				Rank: Certain, Title: fmt.Sprintf("Quota %s is used up", full.Name), Cause: fmt.Sprintf("%s of %s %s are used.", used.String(), hard.String(), name),
				Object: "resourcequota/" + full.Name, Fix: fmt.Sprintf("Wait for other jobs to end, or have the quota raised; see kubectl describe resourcequota %s -n %s", full.Name, facts.Namespace),
				Documentation: pageFailures,
			})
		}
	}
	return findings
}

// countsPods tells whether no pod goes without a resource.
func countsPods(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourcePods, "count/pods", corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceMemory, corev1.ResourceRequestsMemory:
		return true
	}
	return false
}
