package plan

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// dnsPorts are where nameservers listen. Policies are applied behind Services,
// and those of OpenShift lead to 5353.
var dnsPorts = []int32{53, 5353}

// NetworkPolicy keeps a job that asks for it to itself. egressPorts are the TCP
// ports that Restricted leaves open, of any destination: those of pods, where a
// Service leads to other ports than its own.
//
// What comes in is the same for both templates: what the job's own pods send.
// Kubelets reach the pods of their node whatever a policy says.
func NetworkPolicy(j *job.Job, egressPorts []int32) *networkingv1.NetworkPolicy {
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: objectMeta(j, NamesOf(j).NetworkPolicy),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: Selector(j)},
			// Default says nothing about the way out: a rule that opens it would also
			// open it where the namespace has a policy that closes it.
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: ownPods(j)}},
		},
	}
	if j.NetworkPolicy != training.NetworkPolicyDefault {
		policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		policy.Spec.Egress = restrictedEgress(j, egressPorts)
	}
	return policy
}

// restrictedEgress is all that Restricted lets out. A rule without destinations
// is one for every destination, in the cluster and outside: addresses do not do
// for that, because some networks do not look for pods among them.
func restrictedEgress(j *job.Job, ports []int32) []networkingv1.NetworkPolicyEgressRule {
	rules := []networkingv1.NetworkPolicyEgressRule{
		{To: ownPods(j)},
		// To any destination, because nothing tells a nameserver apart: it is a pod of
		// kube-system or openshift-dns, a cache at an address of the node, or one of
		// the pod's own dnsConfig. Who may ask any nameserver gets what is asked
		// passed on anyway.
		{Ports: append(portsOf(corev1.ProtocolUDP, dnsPorts), portsOf(corev1.ProtocolTCP, dnsPorts)...)},
	}
	// A rule with an empty list of ports would open them all.
	if len(ports) > 0 {
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{Ports: portsOf(corev1.ProtocolTCP, ports)})
	}
	return rules
}

// ownPods are all pods of the job: launcher, workers and initializer. Rules with
// it leave every port open. The launcher logs in to workers on the port of the
// agent or of the image's own sshd, Hydra's proxies and Open MPI's daemons call
// back on ports that the system chooses, and libraries such as UCX and NCCL have
// protocols of their own.
func ownPods(j *job.Job) []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: Selector(j)}}}
}

func portsOf(protocol corev1.Protocol, numbers []int32) []networkingv1.NetworkPolicyPort {
	ports := make([]networkingv1.NetworkPolicyPort, 0, len(numbers))
	for _, number := range numbers {
		port := intstr.FromInt32(number)
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
	}
	return ports
}
