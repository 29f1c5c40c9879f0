// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// part finds the same part of a policy in each of its copies.
type part[T any] func(*networkingv1.NetworkPolicySpec) *T

// mutants are copies of a policy, each with one thing changed.
type mutants map[string]*networkingv1.NetworkPolicy

func mutantsOf(policy *networkingv1.NetworkPolicy) mutants {
	all := mutants{}
	for i, kind := range policy.Spec.PolicyTypes {
		all.add(policy, fmt.Sprintf("type %s dropped", kind), func(spec *networkingv1.NetworkPolicySpec) {
			spec.PolicyTypes = without(spec.PolicyTypes, i)
		})
	}
	all.labels(policy, "pods", &policy.Spec.PodSelector, func(spec *networkingv1.NetworkPolicySpec) *metav1.LabelSelector {
		return &spec.PodSelector
	})
	for i, rule := range policy.Spec.Ingress {
		name := fmt.Sprintf("ingress %d", i)
		all.add(policy, name+" dropped", func(spec *networkingv1.NetworkPolicySpec) { spec.Ingress = without(spec.Ingress, i) })
		all.peers(policy, name, rule.From, func(spec *networkingv1.NetworkPolicySpec) *[]networkingv1.NetworkPolicyPeer {
			return &spec.Ingress[i].From
		})
		all.ports(policy, name, rule.Ports, func(spec *networkingv1.NetworkPolicySpec) *[]networkingv1.NetworkPolicyPort {
			return &spec.Ingress[i].Ports
		})
	}
	for i, rule := range policy.Spec.Egress {
		name := fmt.Sprintf("egress %d", i)
		all.add(policy, name+" dropped", func(spec *networkingv1.NetworkPolicySpec) { spec.Egress = without(spec.Egress, i) })
		all.peers(policy, name, rule.To, func(spec *networkingv1.NetworkPolicySpec) *[]networkingv1.NetworkPolicyPeer {
			return &spec.Egress[i].To
		})
		all.ports(policy, name, rule.Ports, func(spec *networkingv1.NetworkPolicySpec) *[]networkingv1.NetworkPolicyPort {
			return &spec.Egress[i].Ports
		})
	}
	return all
}

func (all mutants) add(policy *networkingv1.NetworkPolicy, name string, change func(*networkingv1.NetworkPolicySpec)) {
	mutant := policy.DeepCopy()
	change(&mutant.Spec)
	// The evaluator wants a policy to have a type; without any it has no effect,
	// as one that selects nothing.
	if len(mutant.Spec.PolicyTypes) == 0 {
		mutant.Spec.PolicyTypes = policy.Spec.PolicyTypes
		mutant.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has-this"}}
	}
	all[name] = mutant
}

// peers of a rule: each dropped, opened to every namespace, and known by less.
// Without its last peer, a rule is one for everybody.
func (all mutants) peers(policy *networkingv1.NetworkPolicy, rule string, peers []networkingv1.NetworkPolicyPeer, in part[[]networkingv1.NetworkPolicyPeer]) {
	for i := range peers {
		name := fmt.Sprintf("%s, peer %d", rule, i)
		all.add(policy, name+" dropped", func(spec *networkingv1.NetworkPolicySpec) { *in(spec) = without(*in(spec), i) })
		all.add(policy, name+" in every namespace", func(spec *networkingv1.NetworkPolicySpec) {
			(*in(spec))[i].NamespaceSelector = &metav1.LabelSelector{}
		})
		all.labels(policy, name, peers[i].PodSelector, func(spec *networkingv1.NetworkPolicySpec) *metav1.LabelSelector {
			return (*in(spec))[i].PodSelector
		})
	}
}

// ports of a rule: each dropped, and all at once, which opens every one.
func (all mutants) ports(policy *networkingv1.NetworkPolicy, rule string, ports []networkingv1.NetworkPolicyPort, in part[[]networkingv1.NetworkPolicyPort]) {
	for i, port := range ports {
		all.add(policy, fmt.Sprintf("%s, port %s %s dropped", rule, *port.Protocol, port.Port.String()), func(spec *networkingv1.NetworkPolicySpec) {
			*in(spec) = without(*in(spec), i)
		})
	}
	if len(ports) > 0 {
		all.add(policy, rule+" on every port", func(spec *networkingv1.NetworkPolicySpec) { *in(spec) = nil })
	}
}

func (all mutants) labels(policy *networkingv1.NetworkPolicy, where string, selector *metav1.LabelSelector, in part[metav1.LabelSelector]) {
	for label := range selector.MatchLabels {
		all.add(policy, fmt.Sprintf("%s, label %s dropped", where, label), func(spec *networkingv1.NetworkPolicySpec) {
			delete(in(spec).MatchLabels, label)
		})
	}
}

func without[T any](list []T, i int) []T { return slices.Delete(slices.Clone(list), i, i+1) }
