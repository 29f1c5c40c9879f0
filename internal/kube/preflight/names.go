package preflight

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// names looks whether the job's host names can be found: the headless Service, its
// endpoints and the nameservers.
func names(facts *Facts) []Finding {
	if facts.hasSucceeded() || facts.hasFailed() || facts.reached(training.StepWorkersReached) {
		return nil
	}
	return append(facts.service(), facts.nameservers()...)
}

func (facts *Facts) service() []Finding {
	// Before there are pods there need be no Service.
	if !facts.Stored || facts.Job == nil || len(active(facts.podsOf(training.RoleWorker))) == 0 {
		return nil
	}
	name := facts.serviceName()
	finding := Finding{
		Rank: Likely, Object: "service/" + name, Documentation: pageMPI,
		Fix: fmt.Sprintf("kubectl describe service %s -n %s", name, facts.Namespace),
	}
	switch {
	case facts.Service.Unknown != "":
		return unknown("The job's Service", facts.Service.Unknown)
	case facts.Service.Value == nil:
		finding.Title, finding.Cause = "The job's Service is missing", "Without it no worker's host name is found. The operator recreates it if it runs."
		finding.Fix = facts.operatorLog()
	case facts.Endpoints.Unknown != "":
		return unknown("Endpoints of the job's Service", facts.Endpoints.Unknown)
	case facts.running() > 0 && facts.addresses() == 0:
		finding.Title = "The job's Service has no endpoints"
		finding.Cause = fmt.Sprintf("%s of the job have an address, and none is published, so that no host name is found.", count(facts.running(), "pod"))
	default:
		return nil
	}
	return []Finding{finding}
}

func (facts *Facts) serviceName() string { return plan.NamesOf(facts.bare()).Service }

// bare is the job without what it says: enough for names and labels.
func (facts *Facts) bare() *job.Job {
	return &job.Job{Kind: facts.Kind, Namespace: facts.Namespace, Name: facts.Name}
}

// running is how many pods have an address.
func (facts *Facts) running() (number int) {
	for i := range facts.Pods.Value {
		if pod := &facts.Pods.Value[i]; pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning {
			number++
		}
	}
	return number
}

func (facts *Facts) addresses() (number int) {
	for _, slice := range facts.Endpoints.Value {
		number += len(slice.Endpoints)
	}
	return number
}

// nameservers finds DNS pods that are not ready. Where there are none that we know,
// the cluster's DNS is elsewhere.
func (facts *Facts) nameservers() []Finding {
	pods := facts.Nameservers.Value
	if facts.Nameservers.Unknown != "" {
		return unknown("The cluster's DNS", facts.Nameservers.Unknown)
	}
	if len(pods) == 0 || slices.ContainsFunc(pods, isReady) {
		return nil
	}
	return []Finding{{
		Rank: Likely, Title: "The cluster's DNS is not ready", Cause: fmt.Sprintf("None of %s of DNS is ready, so that no host name is found.", count(len(pods), "pod")),
		Object: "pod/" + pods[0].Name, Fix: fmt.Sprintf("kubectl describe pods -n %s -l k8s-app=kube-dns", pods[0].Namespace), Documentation: pageFailures,
	}}
}

func isReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}
