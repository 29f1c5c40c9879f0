package preflight

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// podSecurity is what the namespace's PodSecurity level has against pods that are
// not there yet.
func podSecurity(facts *Facts) (findings []Finding) {
	if facts.hasSucceeded() || facts.Job == nil {
		return nil
	}
	if facts.Place.Unknown != "" {
		return unknown("PodSecurity level", facts.Place.Unknown)
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
			// OpenShift fills in what a pod leaves open.
			Rank: facts.rank(Likely, training.StepPodsReady, training.FailureLauncher, training.FailureWorker), Title: fmt.Sprintf("The %s violates PodSecurity %q", role, level),
			Cause: violated, Object: "namespace/" + facts.Namespace,
			Fix:           "Set the securityContext of the pods as the level wants it; see kubectl get namespace " + facts.Namespace + " --show-labels",
			Documentation: pageJobs,
		})
	}
	return findings
}

// labels of the namespace.
func (facts *Facts) labels() map[string]string {
	if facts.Place.Value == nil {
		return nil
	}
	return facts.Place.Value.Labels
}

// istioProxy is the name of Istio's container.
const istioProxy = "istio-proxy"

// istio finds sidecars, which MPI does not work through.
func istio(facts *Facts) []Finding {
	if facts.hasSucceeded() {
		return nil
	}
	for i := range facts.Pods.Value {
		pod := &facts.Pods.Value[i]
		if slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(container corev1.Container) bool { return container.Name == istioProxy }) {
			return []Finding{{
				Rank: facts.rank(Likely, training.StepWorkersReached, training.FailureSSHConnection, training.FailureMPIInitialization), Title: "Pods have a sidecar of Istio",
				Cause: "MPI does not work through it.", Object: "pod/" + pod.Name,
				Fix: fmt.Sprintf("kubectl label namespace %s istio-injection-", facts.Namespace), Documentation: pageMPI,
			}}
		}
	}
	if facts.Place.Unknown != "" {
		return unknown("Istio injection", facts.Place.Unknown)
	}
	labels := facts.labels()
	if labels["istio-injection"] != "enabled" && labels["istio.io/rev"] == "" {
		return nil
	}
	return []Finding{{
		Rank: Note, Title: "Istio injects sidecars in this namespace", Cause: fmt.Sprintf("The operator labels the pods of jobs %s=false, so they get none.", training.IstioInject),
		Object: "namespace/" + facts.Namespace, Documentation: pageMPI,
	}}
}
