// SPDX-License-Identifier: Apache-2.0

package teamspace

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// networkPolicies deny all traffic, and allow what jobs need. Policies are additive: a
// rule here cannot be taken back by the policy of a job. With IsolationJob, ingress is
// therefore left to the policies of the jobs.
func networkPolicies(s Settings) []Object {
	everyPod := metav1.LabelSelector{}
	jobs := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: training.LabelJobName, Operator: metav1.LabelSelectorOpExists},
	}}
	ofJobs := []networkingv1.NetworkPolicyPeer{{PodSelector: &jobs}}
	ingress, egress := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress

	deny := networkingv1.NetworkPolicySpec{PodSelector: everyPod, PolicyTypes: []networkingv1.PolicyType{ingress, egress}}
	dns := networkingv1.NetworkPolicySpec{
		PodSelector: everyPod, PolicyTypes: []networkingv1.PolicyType{egress},
		Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: plan.DNSPorts()}},
	}
	job := networkingv1.NetworkPolicySpec{
		PodSelector: jobs, PolicyTypes: []networkingv1.PolicyType{egress},
		Egress: []networkingv1.NetworkPolicyEgressRule{{To: ofJobs}, plan.ReportEgress(s.OperatorNamespace, s.ReportsPort)},
	}
	// A rule with an empty list of ports would open them all.
	if len(s.EgressPorts) > 0 {
		job.Egress = append(job.Egress, networkingv1.NetworkPolicyEgressRule{Ports: plan.Ports(corev1.ProtocolTCP, s.EgressPorts)})
	}
	if s.Isolation == IsolationNamespace {
		job.PolicyTypes = append(job.PolicyTypes, ingress)
		job.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: ofJobs}}
	}
	return []Object{
		networkPolicy(s, "trireme-default-deny", deny),
		networkPolicy(s, "trireme-dns", dns),
		networkPolicy(s, "trireme-jobs", job),
	}
}

func networkPolicy(s Settings, name string, spec networkingv1.NetworkPolicySpec) Object {
	return &networkingv1.NetworkPolicy{TypeMeta: typeOf("networking.k8s.io/v1", "NetworkPolicy"), ObjectMeta: meta(s, name), Spec: spec}
}
