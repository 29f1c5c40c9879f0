// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"time"
)

const (
	// operatorName is the operator's Deployment.
	operatorName = "trireme-operator"
	// leaseName is the Lease of the operator's leader election.
	leaseName = "trireme-leader"
	// leaseSlack is the tolerated difference of clocks.
	leaseSlack = 30 * time.Second
)

// operator checks that an operator is running.
func operator(facts *Facts) []Finding {
	if facts.hasSucceeded() || facts.hasFailed() {
		return nil
	}
	deployment, lease := facts.Deployment, facts.Lease
	finding := Finding{Rank: facts.operatorRank(), Object: "deployment/" + operatorName, Fix: facts.operatorLog(), Documentation: pageOperator}
	switch {
	case deployment.Unknown != "" && lease.Unknown != "":
		return unknown("The operator", deployment.Unknown)
	case deployment.Unknown == "" && deployment.Value == nil && lease.Value == nil:
		finding.Rank, finding.Title = Possible, "The operator was not found"
		finding.Cause = fmt.Sprintf("Deployment %s does not exist in namespace %s: the operator is not installed, or is in another namespace.", operatorName, facts.OperatorNamespace)
		finding.Fix = "kubectl get deployments -A | grep " + operatorName
	case deployment.Value != nil && deployment.Value.Status.ReadyReplicas == 0:
		finding.Title, finding.Cause = "The operator is not ready", fmt.Sprintf("None of its %s is ready.", count(int(deployment.Value.Status.Replicas), "replica"))
	case facts.leaseAge() > leaseSlack:
		finding.Title, finding.Cause = "No operator processes jobs", fmt.Sprintf("The Lease %s was last renewed %s ago.", leaseName, facts.leaseAge().Round(time.Second))
		finding.Object = "lease/" + leaseName
	default:
		return nil
	}
	if finding.Rank.Blocks() {
		finding.waits = &Waiting{Cause: WaitOperator}
	}
	return []Finding{finding}
}

// operatorRank is lower for a job that has started: it keeps running without an
// operator, but its status does not change.
func (facts *Facts) operatorRank() Rank {
	if facts.Previous.Phase == "" || !facts.Stored {
		return Certain
	}
	return Likely
}

// leaseAge returns how long the Lease has been overdue; 0 if unknown.
func (facts *Facts) leaseAge() time.Duration {
	lease := facts.Lease.Value
	if lease == nil || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return facts.Now.Sub(lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second))
}

func (facts *Facts) operatorLog() string {
	return fmt.Sprintf("kubectl logs -n %s deployment/%s --tail=50", facts.OperatorNamespace, operatorName)
}
