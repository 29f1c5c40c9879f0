// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Table is the nftables table of the rules.
const Table = "network-policies"

// State is everything that the rules depend on.
type State struct {
	// Addresses is the range of pod addresses.
	Addresses  netip.Prefix
	Pods       []*corev1.Pod
	Namespaces []*corev1.Namespace
	Policies   []*networkingv1.NetworkPolicy
}

// Ruleset returns the input of nft that replaces all rules in one transaction.
//
// A packet of a new connection passes the egress chain of its source and the ingress
// chain of its destination, if policies select these pods. Packets of a pod whose address
// the API server does not know yet are dropped, because nothing is known about its
// policies. Traffic between a pod and its own node is not forwarded: NetworkPolicies
// always allow it.
func Ruleset(state State) string {
	pods := state.podsWithAddress()
	var elements, ingress, egress []string
	var chains strings.Builder
	for _, pod := range pods {
		elements = append(elements, pod.Status.PodIP)
		for _, way := range []*direction{incoming, outgoing} {
			policies := state.policiesFor(pod, way)
			if len(policies) == 0 {
				continue
			}
			chain := string(way.policyType) + "-" + pod.Status.PodIP
			element := pod.Status.PodIP + " : jump " + chain
			if way == incoming {
				ingress = append(ingress, element)
			} else {
				egress = append(egress, element)
			}
			fmt.Fprintf(&chains, "\tchain %s {\n", chain)
			for _, match := range state.matches(pod, policies, way) {
				fmt.Fprintf(&chains, "\t\t%s\n", strings.TrimSpace(match+" return"))
			}
			fmt.Fprintf(&chains, "\t\tcounter drop comment %q\n\t}\n", comment(pod))
		}
	}
	var text strings.Builder
	// The first line creates the table, so that the second cannot fail.
	fmt.Fprintf(&text, "table ip %[1]s {}\ndelete table ip %[1]s\ntable ip %[1]s {\n", Table)
	fmt.Fprintf(&text, "\tset pods {\n\t\ttype ipv4_addr\n%s\t}\n", elementsLine(elements))
	fmt.Fprintf(&text, "\tmap egress {\n\t\ttype ipv4_addr : verdict\n%s\t}\n", elementsLine(egress))
	fmt.Fprintf(&text, "\tmap ingress {\n\t\ttype ipv4_addr : verdict\n%s\t}\n", elementsLine(ingress))
	text.WriteString(chains.String())
	fmt.Fprintf(&text, `	chain forward {
		type filter hook forward priority filter; policy accept;
		ct state established,related accept
		ip saddr %[1]s ip saddr != @pods counter drop comment "unknown source"
		ip daddr %[1]s ip daddr != @pods counter drop comment "unknown destination"
		ip saddr vmap @egress
		ip daddr vmap @ingress
	}
}
`, state.Addresses)
	return text.String()
}

// direction is the difference between ingress and egress.
type direction struct {
	policyType networkingv1.PolicyType
	// peer is the header field with the address of the other end.
	peer string
}

var (
	incoming = &direction{networkingv1.PolicyTypeIngress, "ip saddr"}
	outgoing = &direction{networkingv1.PolicyTypeEgress, "ip daddr"}
)

// rule is a rule of either direction.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

func (d *direction) rules(policy *networkingv1.NetworkPolicy) (rules []rule) {
	if d == incoming {
		for _, r := range policy.Spec.Ingress {
			rules = append(rules, rule{r.From, r.Ports})
		}
		return rules
	}
	for _, r := range policy.Spec.Egress {
		rules = append(rules, rule{r.To, r.Ports})
	}
	return rules
}

// podsWithAddress are the pods that have an address of the pod network, in the order of
// the addresses. The address of a finished pod may belong to another one already.
func (s State) podsWithAddress() (pods []*corev1.Pod) {
	for _, pod := range s.Pods {
		address, err := netip.ParseAddr(pod.Status.PodIP)
		finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if err == nil && s.Addresses.Contains(address) && !pod.Spec.HostNetwork && !finished {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Status.PodIP, b.Status.PodIP), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	// Two pods have one address only while the older one is being deleted.
	return slices.CompactFunc(pods, func(a, b *corev1.Pod) bool { return a.Status.PodIP == b.Status.PodIP })
}

// policiesFor are the policies that select a pod and restrict a direction.
func (s State) policiesFor(pod *corev1.Pod, way *direction) (policies []*networkingv1.NetworkPolicy) {
	for _, policy := range s.Policies {
		if policy.Namespace == pod.Namespace && slices.Contains(policy.Spec.PolicyTypes, way.policyType) && selects(&policy.Spec.PodSelector, pod.Labels) {
			policies = append(policies, policy)
		}
	}
	return policies
}

// matches are the expressions of the traffic that policies allow to or from a pod.
func (s State) matches(pod *corev1.Pod, policies []*networkingv1.NetworkPolicy, way *direction) (all []string) {
	for _, policy := range policies {
		for _, rule := range way.rules(policy) {
			for _, end := range s.ends(pod, policy.Namespace, rule, way) {
				for _, ports := range end.ports(rule.ports) {
					all = append(all, strings.TrimSpace(end.expression+" "+ports))
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func elementsLine(elements []string) string {
	if len(elements) == 0 {
		return ""
	}
	return "\t\telements = { " + strings.Join(elements, ", ") + " }\n"
}

// comment names the pod of a rule; the kernel allows 128 bytes.
func comment(pod *corev1.Pod) string {
	text := pod.Namespace + "/" + pod.Name
	return text[:min(len(text), 120)]
}

func (s State) namespaceLabels(name string) labels.Set {
	for _, namespace := range s.Namespaces {
		if namespace.Name == name {
			return namespace.Labels
		}
	}
	return nil
}
