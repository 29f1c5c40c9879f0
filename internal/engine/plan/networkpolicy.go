// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// dnsPorts are the ports of nameservers. Policies apply to the pods behind a Service,
// and OpenShift's nameserver pods listen on 5353.
var dnsPorts = []int32{53, 5353}

// NetworkPolicy isolates the job's pods. egressPorts are the TCP ports that the template
// Restricted leaves open to any destination. If a Service maps ports, these are the
// ports of its pods.
//
// Both templates allow ingress from the job's own pods only. Kubelets can reach the pods
// of their node in spite of any policy.
func NetworkPolicy(j *job.Job, egressPorts []int32, reports *Reports) *networkingv1.NetworkPolicy {
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: objectMeta(j, NamesOf(j).NetworkPolicy),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: Selector(j)},
			// Default has no egress rule: one that allows egress would override a policy of
			// the namespace that denies it.
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: ownPods(j)}},
		},
	}
	if j.NetworkPolicy != training.NetworkPolicyDefault {
		policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		policy.Spec.Egress = restrictedEgress(j, egressPorts)
		if reports != nil {
			policy.Spec.Egress = append(policy.Spec.Egress, ReportEgress(reports.Namespace, reports.Port))
		}
	}
	return policy
}

// restrictedEgress are the egress rules of Restricted. A rule without destinations
// allows every destination inside and outside the cluster. An IP block would not: some
// network plugins do not match pods by it.
func restrictedEgress(j *job.Job, ports []int32) []networkingv1.NetworkPolicyEgressRule {
	rules := []networkingv1.NetworkPolicyEgressRule{
		{To: ownPods(j)},
		// DNS to any destination, because no selector matches all nameservers: they are
		// pods of kube-system or openshift-dns, a cache at an address of the node, or set
		// in the pod's own dnsConfig. A narrower rule would protect little, because every
		// nameserver forwards queries.
		{Ports: DNSPorts()},
	}
	// A rule with an empty list of ports would open them all.
	if len(ports) > 0 {
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{Ports: Ports(corev1.ProtocolTCP, ports)})
	}
	return rules
}

// ownPods selects all pods of the job: launcher, workers and initializer. The rules with
// it allow every port: the launcher connects to the port of the agent or of the image's
// own sshd, Hydra's proxies and Open MPI's daemons connect back on ports that the system
// chooses, and libraries such as UCX and NCCL have their own protocols.
func ownPods(j *job.Job) []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: Selector(j)}}}
}

// DNSPorts are the ports of nameservers in a rule.
func DNSPorts() []networkingv1.NetworkPolicyPort {
	return append(Ports(corev1.ProtocolUDP, dnsPorts), Ports(corev1.ProtocolTCP, dnsPorts)...)
}

// Ports are the ports of a rule.
func Ports(protocol corev1.Protocol, numbers []int32) []networkingv1.NetworkPolicyPort {
	ports := make([]networkingv1.NetworkPolicyPort, 0, len(numbers))
	for _, number := range numbers {
		port := intstr.FromInt32(number)
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
	}
	return ports
}
