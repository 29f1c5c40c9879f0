// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// names checks whether the job's host names resolve: the headless Service, its
// endpoints and the nameservers.
func names(facts *Facts) []Finding {
	if facts.hasSucceeded() || facts.hasFailed() || facts.reached(training.StepWorkersReached) {
		return nil
	}
	return append(facts.service(), facts.nameservers()...)
}

func (facts *Facts) service() []Finding {
	// The Service is only needed once pods exist.
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
		finding.Title, finding.Cause = "The job's Service is missing", "Without it the host names of workers do not resolve. The operator recreates it when it is running."
		finding.Fix = facts.operatorLog()
	case facts.Endpoints.Unknown != "":
		return unknown("Endpoints of the job's Service", facts.Endpoints.Unknown)
	case facts.running() > 0 && facts.addresses() == 0:
		finding.Title = "The job's Service has no endpoints"
		finding.Cause = fmt.Sprintf("%s of the job have an IP address, and the Service publishes none, so host names do not resolve.", count(facts.running(), "pod"))
	default:
		return nil
	}
	return []Finding{finding}
}

func (facts *Facts) serviceName() string { return plan.NamesOf(facts.bare()).Service }

// bare is a model with only the identity of the job: enough for names and labels.
func (facts *Facts) bare() *job.Job {
	return &job.Job{Kind: facts.Kind, Namespace: facts.Namespace, Name: facts.Name}
}

// running returns how many pods are running and have an IP address.
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

// nameservers finds DNS pods that are not ready. A cluster without known DNS pods has
// another DNS service.
func (facts *Facts) nameservers() []Finding {
	pods := facts.Nameservers.Value
	if facts.Nameservers.Unknown != "" {
		return unknown("Cluster DNS", facts.Nameservers.Unknown)
	}
	if len(pods) == 0 || slices.ContainsFunc(pods, isReady) {
		return nil
	}
	return []Finding{{
		Rank: Likely, Title: "Cluster DNS is not ready", Cause: fmt.Sprintf("None of %s is ready, so host names do not resolve.", count(len(pods), "DNS pod")),
		Object: "pod/" + pods[0].Name, Fix: fmt.Sprintf("kubectl describe pods -n %s -l k8s-app=kube-dns", pods[0].Namespace), Documentation: pageFailures,
	}}
}

func isReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}
