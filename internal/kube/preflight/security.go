// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// podSecurity finds violations of the namespace's PodSecurity level by pods that do
// not exist yet.
func podSecurity(facts *Facts) (findings []Finding) {
	if facts.hasSucceeded() || facts.Job == nil {
		return nil
	}
	if facts.NamespaceObject.Unknown != "" {
		return unknown("PodSecurity level", facts.NamespaceObject.Unknown)
	}
	for _, role := range []string{training.RoleLauncher, training.RoleWorker} {
		pod := facts.planned(role)
		if pod == nil || len(facts.podsOf(role)) > 0 {
			continue
		}
		level, violated := validation.PodSecurity(facts.labels(), &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
		if violated == "" {
			continue
		}
		findings = append(findings, Finding{
			// OpenShift sets fields that a pod leaves empty, so it is not certain.
			Rank: facts.rank(Likely, training.StepPodsReady, training.FailureLauncher, training.FailureWorker), Title: fmt.Sprintf("The %s violates PodSecurity %q", role, level),
			Cause: violated, Object: "namespace/" + facts.Namespace,
			Fix:           "Set the securityContext of the pods as the level requires; see kubectl get namespace " + facts.Namespace + " --show-labels",
			Documentation: pageJobs,
		})
	}
	return findings
}

// labels returns the labels of the namespace.
func (facts *Facts) labels() map[string]string {
	if facts.NamespaceObject.Value == nil {
		return nil
	}
	return facts.NamespaceObject.Value.Labels
}

// istioProxy is the name of Istio's container.
const istioProxy = "istio-proxy"

// istio finds sidecars, because MPI does not work through them.
func istio(facts *Facts) []Finding {
	if facts.hasSucceeded() {
		return nil
	}
	for i := range facts.Pods.Value {
		pod := &facts.Pods.Value[i]
		if slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(container corev1.Container) bool { return container.Name == istioProxy }) {
			return []Finding{{
				Rank: facts.rank(Likely, training.StepWorkersReached, training.FailureSSHConnection, training.FailureMPIInitialization), Title: "Pods have an Istio sidecar",
				Cause: "MPI does not work through it.", Object: "pod/" + pod.Name,
				Fix: fmt.Sprintf("kubectl label namespace %s istio-injection-", facts.Namespace), Documentation: pageMPI,
			}}
		}
	}
	if facts.NamespaceObject.Unknown != "" {
		return unknown("Istio injection", facts.NamespaceObject.Unknown)
	}
	labels := facts.labels()
	if labels["istio-injection"] != "enabled" && labels["istio.io/rev"] == "" {
		return nil
	}
	return []Finding{{
		Rank: Note, Title: "Istio injects sidecars in this namespace", Cause: fmt.Sprintf("The operator labels the pods of jobs with %s=false, so they get no sidecar.", training.IstioInject),
		Object: "namespace/" + facts.Namespace, Documentation: pageMPI,
	}}
}
