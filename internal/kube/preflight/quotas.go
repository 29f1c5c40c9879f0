// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/quota"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// minMPIJobWorkers is the operator's default minimum.
const minMPIJobWorkers = 2

// quotas finds quotas that are too small for the pods that do not exist yet.
func quotas(facts *Facts) []Finding {
	switch {
	case facts.hasSucceeded():
		return nil
	case facts.Quotas.Unknown != "":
		return unknown("Quota", facts.Quotas.Unknown)
	case facts.Job == nil:
		return facts.fullQuotas()
	}
	demand := facts.missingDemand()
	shortages := quota.Shortages(demand, facts.Quotas.Value)
	if demand.Workers.Count+demand.Launcher.Count == 0 || len(shortages) == 0 {
		return nil
	}
	requested, available := quota.Brief(shortages)
	subject := "The job requests"
	if facts.Stored {
		subject = "The pods that do not exist yet request"
	}
	finding := Finding{
		Rank: facts.rank(Certain, training.StepScheduled, training.FailureResourceQuota), Title: "The namespace's quota is too small",
		Cause:  fmt.Sprintf("%s %s; quota %s has %s available.", subject, requested, shortages[0].Quota, available),
		Object: "resourcequota/" + shortages[0].Quota, Documentation: pageFailures,
	}
	finding.Fix, finding.waits = facts.quotaFix(demand), &Waiting{Cause: WaitQuota}
	return []Finding{finding}
}

// missingDemand is what the pods that do not exist yet request.
func (facts *Facts) missingDemand() *quota.Demand {
	least := int64(1)
	if facts.Kind == job.KindMPIJob {
		least = minMPIJobWorkers
	}
	demand := validation.Demand(facts.Job, &validation.ClusterFacts{LimitRanges: facts.LimitRanges.Value}, least)
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
		return fmt.Sprintf("Use %s, wait for other jobs to finish, or ask for a larger quota; see %s", count(int(fitting), "worker"), see)
	}
	return "Wait for other jobs to finish, request less, or ask for a larger quota; see " + see
}

// fullQuotas finds quotas that allow no further pod, whatever it requests.
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
				Object: "resourcequota/" + full.Name, Fix: fmt.Sprintf("Wait for other jobs to finish, or ask for a larger quota; see kubectl describe resourcequota %s -n %s", full.Name, facts.Namespace),
				Documentation: pageFailures, waits: &Waiting{Cause: WaitQuota},
			})
		}
	}
	return findings
}

// countsPods reports whether every pod uses some of a resource.
func countsPods(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourcePods, "count/pods", corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceMemory, corev1.ResourceRequestsMemory:
		return true
	}
	return false
}
