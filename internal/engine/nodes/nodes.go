// Package nodes tells which nodes would take a pod, and what hinders on the
// others. It is pure: nodes and pods are handed in.
//
// It knows what most pods are turned away for: node selectors and affinities,
// cordons, taints and room. What depends on other pods, such as spreading or
// ports of the node, is the scheduler's own.
package nodes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Hindrance is why a node would not take a pod, in few words that are the same on
// all nodes with the same hindrance; empty if it would. used is what the pods on
// the node ask for.
func Hindrance(node *corev1.Node, pod *corev1.Pod, used corev1.ResourceList) string {
	if node.Spec.Unschedulable {
		return "cordoned"
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !matches {
		return unmatched(pod)
	}
	if taint, found := untolerated(node, pod); found {
		return fmt.Sprintf("taint %s is not tolerated", taint.ToString())
	}
	return short(node, pod, used)
}

// Takes tells whether a node would take a pod.
func Takes(node *corev1.Node, pod *corev1.Pod, used corev1.ResourceList) bool {
	return Hindrance(node, pod, used) == ""
}

func unmatched(pod *corev1.Pod) string {
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		labels = append(labels, key+"="+pod.Spec.NodeSelector[key])
	}
	if len(labels) == 0 {
		return "no match for the node affinity"
	}
	return "no match for the node selector " + strings.Join(labels, ",")
}

func untolerated(node *corev1.Node, pod *corev1.Pod) (corev1.Taint, bool) {
	return v1helper.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, func(taint *corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
	}, false)
}

// short names what a node has too little of: in all, or only now.
func short(node *corev1.Node, pod *corev1.Pod, used corev1.ResourceList) string {
	requests := job.Requests(&pod.Spec)
	var never, now []string
	for _, name := range job.ResourceNames(requests) {
		wanted, free := requests[name], node.Status.Allocatable[name].DeepCopy()
		if wanted.Sign() <= 0 {
			continue
		}
		if free.Cmp(wanted) < 0 {
			never = append(never, string(name))
			continue
		}
		if free.Sub(used[name]); free.Cmp(wanted) < 0 {
			now = append(now, string(name))
		}
	}
	switch {
	case len(never) > 0:
		return fmt.Sprintf("too small: %s", strings.Join(never, ", "))
	case len(now) > 0:
		return fmt.Sprintf("too full: %s", strings.Join(now, ", "))
	default:
		return ""
	}
}

// Use adds what a pod asks for to what is used on its node. A pod that has no
// node, or has ended, uses nothing.
func Use(used map[string]corev1.ResourceList, pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	node := used[pod.Spec.NodeName]
	if node == nil {
		node = corev1.ResourceList{}
		used[pod.Spec.NodeName] = node
	}
	for name, quantity := range job.Requests(&pod.Spec) {
		sum := node[name]
		sum.Add(quantity)
		node[name] = sum
	}
}
