// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/utils/net"
)

// end is a group of addresses at the other end of a connection, with the pod whose
// named ports a rule means: for ingress the selected pod, for egress the other one.
type end struct {
	expression string
	portsOf    *corev1.Pod
}

// ends are the other ends that a rule allows.
func (s State) ends(pod *corev1.Pod, namespace string, r rule, way *direction) (ends []end) {
	self := pod
	if way == outgoing {
		self = nil
	}
	if len(r.peers) == 0 {
		ends = append(ends, end{"", self})
		if way == outgoing && hasNamedPort(r.ports) {
			ends = append(ends, eachAlone(s.podsWithAddress(), way)...)
		}
	}
	for _, peer := range r.peers {
		if peer.IPBlock != nil {
			// The cluster has IPv4 alone, and nft refuses all rules for one IPv6 address.
			if utilnet.IsIPv4CIDRString(peer.IPBlock.CIDR) {
				ends = append(ends, end{block(peer.IPBlock, way), self})
			}
			continue
		}
		others := s.peerPods(peer, namespace)
		switch {
		case len(others) == 0:
		case way == outgoing && hasNamedPort(r.ports):
			ends = append(ends, eachAlone(others, way)...)
		default:
			ends = append(ends, end{fmt.Sprintf("%s { %s }", way.peer, strings.Join(addresses(others), ", ")), self})
		}
	}
	return ends
}

// eachAlone has an end for each pod, because a port of one name may have another number
// in each.
func eachAlone(pods []*corev1.Pod, way *direction) (ends []end) {
	for _, pod := range pods {
		ends = append(ends, end{way.peer + " " + pod.Status.PodIP, pod})
	}
	return ends
}

// peerPods are the pods that a peer of a policy selects.
func (s State) peerPods(peer networkingv1.NetworkPolicyPeer, namespace string) (pods []*corev1.Pod) {
	for _, pod := range s.podsWithAddress() {
		inNamespace := pod.Namespace == namespace
		if peer.NamespaceSelector != nil {
			inNamespace = selects(peer.NamespaceSelector, s.namespaceLabels(pod.Namespace))
		}
		if inNamespace && (peer.PodSelector == nil || selects(peer.PodSelector, pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	return pods
}

func addresses(pods []*corev1.Pod) (all []string) {
	for _, pod := range pods {
		all = append(all, pod.Status.PodIP)
	}
	return all
}

func block(ipBlock *networkingv1.IPBlock, way *direction) string {
	text := way.peer + " " + ipBlock.CIDR
	for _, exception := range ipBlock.Except {
		text += fmt.Sprintf(" %s != %s", way.peer, exception)
	}
	return text
}

// ports are the expressions of a rule's ports. Without ports, a rule is about all of
// them.
func (e end) ports(ports []networkingv1.NetworkPolicyPort) (expressions []string) {
	if len(ports) == 0 {
		return []string{""}
	}
	for _, port := range ports {
		protocol := corev1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		switch number, found := e.port(port, protocol); {
		case !found:
		case number == "":
			expressions = append(expressions, "meta l4proto "+strings.ToLower(string(protocol)))
		default:
			expressions = append(expressions, strings.ToLower(string(protocol))+" dport "+number)
		}
	}
	return expressions
}

// port returns the number or range of a port, or "" for all ports of the protocol. A
// named port may not exist.
func (e end) port(port networkingv1.NetworkPolicyPort, protocol corev1.Protocol) (number string, found bool) {
	switch {
	case port.Port == nil:
		return "", true
	case port.EndPort != nil:
		return fmt.Sprintf("%d-%d", port.Port.IntVal, *port.EndPort), true
	case port.Port.Type == intstr.Int:
		return port.Port.String(), true
	case e.portsOf == nil:
		return "", false
	}
	for _, container := range append(slices.Clone(e.portsOf.Spec.InitContainers), e.portsOf.Spec.Containers...) {
		for _, declared := range container.Ports {
			if declared.Name == port.Port.StrVal && declared.Protocol == protocol {
				return fmt.Sprint(declared.ContainerPort), true
			}
		}
	}
	return "", false
}

func hasNamedPort(ports []networkingv1.NetworkPolicyPort) bool {
	return slices.ContainsFunc(ports, func(port networkingv1.NetworkPolicyPort) bool {
		return port.Port != nil && port.Port.Type == intstr.String
	})
}

// selects reports whether a selector matches labels. The API server has validated it.
func selects(selector *metav1.LabelSelector, set labels.Set) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(set)
}
