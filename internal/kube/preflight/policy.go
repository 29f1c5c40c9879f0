// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// ports is a range of ports of one protocol.
type ports struct {
	protocol    corev1.Protocol
	first, last int32
}

// side is one end of a connection.
type side struct {
	role string
	pod  *corev1.Pod
	// namespace is the labels of the pod's namespace.
	namespace map[string]string
}

// flow is a connection that a job needs.
type flow struct {
	from, to side
	ports    ports
}

// isolating returns the policies that select a pod for one direction. Without any, all
// traffic is allowed; else only what one of them allows.
func isolating(policies []networkingv1.NetworkPolicy, pod *corev1.Pod, direction networkingv1.PolicyType) (selecting []*networkingv1.NetworkPolicy) {
	for i := range policies {
		policy := &policies[i]
		if policy.Namespace == pod.Namespace && slices.Contains(directions(policy), direction) && selects(&policy.Spec.PodSelector, pod.Labels) {
			selecting = append(selecting, policy)
		}
	}
	return selecting
}

// directions returns policyTypes. By default they are Ingress, and Egress if the policy
// has egress rules.
func directions(policy *networkingv1.NetworkPolicy) []networkingv1.PolicyType {
	if len(policy.Spec.PolicyTypes) > 0 {
		return policy.Spec.PolicyTypes
	}
	if len(policy.Spec.Egress) > 0 {
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	}
	return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
}

// selects reports whether a selector matches labels. An invalid one matches nothing.
func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(set))
}

// rule is an ingress or egress rule.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

func rulesOf(policy *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) (rules []rule) {
	if direction == networkingv1.PolicyTypeIngress {
		for _, ingress := range policy.Spec.Ingress {
			rules = append(rules, rule{ingress.From, ingress.Ports})
		}
		return rules
	}
	for _, egress := range policy.Spec.Egress {
		rules = append(rules, rule{egress.To, egress.Ports})
	}
	return rules
}

// blockedBy returns the policies that block a flow in one direction; none if it is
// allowed. Rules add up: each may allow a part of the ports.
func blockedBy(policies []networkingv1.NetworkPolicy, flow flow, direction networkingv1.PolicyType) []*networkingv1.NetworkPolicy {
	isolated, other := flow.to, flow.from
	if direction == networkingv1.PolicyTypeEgress {
		isolated, other = flow.from, flow.to
	}
	selecting := isolating(policies, isolated.pod, direction)
	var open []ports
	for _, policy := range selecting {
		for _, rule := range rulesOf(policy, direction) {
			if rule.isFor(policy.Namespace, other) {
				open = append(open, rule.open(flow.ports.protocol, flow.to.pod)...)
			}
		}
	}
	if len(selecting) == 0 || cover(open, flow.ports) {
		return nil
	}
	return selecting
}

// isFor reports whether a rule of a policy in a namespace matches the pod at the other
// end. A rule without peers matches every pod.
func (r rule) isFor(namespace string, other side) bool {
	return len(r.peers) == 0 || slices.ContainsFunc(r.peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock != nil {
			return inBlock(peer.IPBlock, other.pod)
		}
		if peer.NamespaceSelector == nil {
			return other.pod.Namespace == namespace && peer.PodSelector != nil && selects(peer.PodSelector, other.pod.Labels)
		}
		return selects(peer.NamespaceSelector, other.namespace) && (peer.PodSelector == nil || selects(peer.PodSelector, other.pod.Labels))
	})
}

// inBlock reports whether a pod's address is in a block. For a pod without an address
// that is certain only if the block contains every address.
func inBlock(block *networkingv1.IPBlock, pod *corev1.Pod) bool {
	prefix, err := netip.ParsePrefix(block.CIDR)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return prefix.Bits() == 0 && len(block.Except) == 0
	}
	return prefix.Contains(address) && !slices.ContainsFunc(block.Except, func(except string) bool {
		hole, err := netip.ParsePrefix(except)
		return err == nil && hole.Contains(address)
	})
}

// open returns the ports of a pod that a rule allows. A rule without ports allows all.
func (r rule) open(protocol corev1.Protocol, to *corev1.Pod) (open []ports) {
	if len(r.ports) == 0 {
		return []ports{{protocol, 1, 65535}}
	}
	for _, port := range r.ports {
		if port.Protocol != nil && *port.Protocol != protocol || port.Protocol == nil && protocol != corev1.ProtocolTCP {
			continue
		}
		switch {
		case port.Port == nil:
			open = append(open, ports{protocol, 1, 65535})
		case port.Port.StrVal != "":
			open = append(open, named(port.Port.StrVal, protocol, to)...)
		case port.EndPort != nil:
			open = append(open, ports{protocol, port.Port.IntVal, *port.EndPort})
		default:
			open = append(open, ports{protocol, port.Port.IntVal, port.Port.IntVal})
		}
	}
	return open
}

// named returns the ports of a pod with a name.
func named(name string, protocol corev1.Protocol, pod *corev1.Pod) (result []ports) {
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == name && (port.Protocol == protocol || port.Protocol == "" && protocol == corev1.ProtocolTCP) {
				result = append(result, ports{protocol, port.ContainerPort, port.ContainerPort})
			}
		}
	}
	return result
}

// cover reports whether the open ranges contain every wanted port.
func cover(open []ports, wanted ports) bool {
	slices.SortFunc(open, func(a, b ports) int { return int(a.first) - int(b.first) })
	next := wanted.first
	for _, part := range open {
		if part.first > next {
			break
		}
		if next = max(next, part.last+1); next > wanted.last {
			return true
		}
	}
	return false
}
