// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

func scoped(quota *corev1.ResourceQuota) bool {
	selector := quota.Spec.ScopeSelector
	return len(quota.Spec.Scopes) > 0 || selector != nil && len(selector.MatchExpressions) > 0
}

// matches reports whether a quota counts a pod. A quota with scopes only counts pods that
// are in all of them.
func matches(quota *corev1.ResourceQuota, pod *corev1.PodSpec) bool {
	if pod == nil {
		return false
	}
	for _, scope := range quota.Spec.Scopes {
		if !inScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, pod) {
			return false
		}
	}
	if quota.Spec.ScopeSelector == nil {
		return true
	}
	for _, requirement := range quota.Spec.ScopeSelector.MatchExpressions {
		if !inScope(requirement, pod) {
			return false
		}
	}
	return true
}

func inScope(requirement corev1.ScopedResourceSelectorRequirement, pod *corev1.PodSpec) bool {
	switch requirement.ScopeName {
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod)
	case corev1.ResourceQuotaScopeTerminating:
		return pod.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopePriorityClass:
		return hasPriorityClass(requirement, pod.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod.Affinity)
	default:
		// A scope that is not for pods.
		return false
	}
}

func hasPriorityClass(requirement corev1.ScopedResourceSelectorRequirement, class string) bool {
	named := slices.Contains(requirement.Values, class)
	switch requirement.Operator {
	case corev1.ScopeSelectorOpExists:
		return class != ""
	case corev1.ScopeSelectorOpDoesNotExist:
		return class == ""
	case corev1.ScopeSelectorOpIn:
		return class != "" && named
	case corev1.ScopeSelectorOpNotIn:
		return !named
	default:
		return false
	}
}

// bestEffort reports whether a pod sets no CPU and no memory.
func bestEffort(pod *corev1.PodSpec) bool {
	setsResources := func(resources corev1.ResourceRequirements) bool {
		for _, list := range []corev1.ResourceList{resources.Requests, resources.Limits} {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if quantity, found := list[name]; found && !quantity.IsZero() {
					return true
				}
			}
		}
		return false
	}
	// Kubernetes ignores containers of pods with pod-level resources. Since 1.37, empty ones do
	// not count as such. Older releases disagree, therefore package job removes them.
	if whole := pod.Resources; whole != nil && len(whole.Requests)+len(whole.Limits) > 0 {
		return !setsResources(*whole)
	}
	return !slices.ContainsFunc(slices.Concat(pod.InitContainers, pod.Containers), func(container corev1.Container) bool {
		return setsResources(container.Resources)
	})
}

// crossesNamespaces reports whether an affinity refers to pods of other namespaces.
func crossesNamespaces(affinity *corev1.Affinity) bool {
	if affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, weighted := range preferred {
			terms = append(terms, weighted.PodAffinityTerm)
		}
	}
	if near := affinity.PodAffinity; near != nil {
		add(near.RequiredDuringSchedulingIgnoredDuringExecution, near.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if far := affinity.PodAntiAffinity; far != nil {
		add(far.RequiredDuringSchedulingIgnoredDuringExecution, far.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(term corev1.PodAffinityTerm) bool {
		return len(term.Namespaces) > 0 || term.NamespaceSelector != nil
	})
}
