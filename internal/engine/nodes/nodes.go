// SPDX-License-Identifier: Apache-2.0

// Package nodes computes which nodes a pod can be scheduled on, and why not on the
// others. It is pure: the caller passes nodes and pods.
//
// It covers the usual reasons: node selectors and affinities, cordons, taints and
// resources. Rules that depend on other pods, such as topology spread or host
// ports, are left to the scheduler.
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

// Kind says which rule keeps a pod off a node.
type Kind string

// The kinds of reasons. The zero Kind means that the pod fits.
const (
	Cordoned          Kind = "Cordoned"
	SelectorMismatch  Kind = "SelectorMismatch"
	AffinityMismatch  Kind = "AffinityMismatch"
	TaintNotTolerated Kind = "TaintNotTolerated"
	// TooSmall: even an empty node has too little of a resource.
	TooSmall Kind = "TooSmall"
	// TooFull: other pods have requested too much of the node.
	TooFull Kind = "TooFull"
)

// Reason is why a pod cannot be scheduled on a node. Nodes with the same problem
// have equal Reasons. The zero Reason means that the pod fits.
type Reason struct {
	Kind Kind
	// Detail names the labels, the taint or the resources, separated by commas.
	Detail string
}

func (r Reason) String() string {
	switch r.Kind {
	case Cordoned:
		return "cordoned"
	case SelectorMismatch:
		return "no match for the node selector " + r.Detail
	case AffinityMismatch:
		return "no match for the node affinity"
	case TaintNotTolerated:
		return fmt.Sprintf("taint %s is not tolerated", r.Detail)
	case TooSmall:
		return "too small: " + r.Detail
	case TooFull:
		return "too full: " + r.Detail
	default:
		return ""
	}
}

// Check returns why a pod cannot be scheduled on a node, or the zero Reason if it
// can. used is what the pods on the node request.
func Check(node *corev1.Node, pod *corev1.Pod, used corev1.ResourceList) Reason {
	if node.Spec.Unschedulable {
		return Reason{Kind: Cordoned}
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !matches {
		return mismatch(pod)
	}
	if taint, found := untolerated(node, pod); found {
		return Reason{Kind: TaintNotTolerated, Detail: taint.ToString()}
	}
	return missingResources(node, pod, used)
}

// Fits reports whether a pod can be scheduled on a node.
func Fits(node *corev1.Node, pod *corev1.Pod, used corev1.ResourceList) bool {
	return Check(node, pod, used) == Reason{}
}

func mismatch(pod *corev1.Pod) Reason {
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		labels = append(labels, key+"="+pod.Spec.NodeSelector[key])
	}
	if len(labels) == 0 {
		return Reason{Kind: AffinityMismatch}
	}
	return Reason{Kind: SelectorMismatch, Detail: strings.Join(labels, ",")}
}

func untolerated(node *corev1.Node, pod *corev1.Pod) (corev1.Taint, bool) {
	return v1helper.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, func(taint *corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
	}, false)
}

// missingResources names the resources that a node has too little of: in total, or
// beside the pods that it runs now.
func missingResources(node *corev1.Node, pod *corev1.Pod, used corev1.ResourceList) Reason {
	requests := job.Requests(&pod.Spec)
	var tooSmall, tooFull []string
	for _, name := range job.ResourceNames(requests) {
		requested, free := requests[name], node.Status.Allocatable[name].DeepCopy()
		if requested.Sign() <= 0 {
			continue
		}
		if free.Cmp(requested) < 0 {
			tooSmall = append(tooSmall, string(name))
			continue
		}
		if free.Sub(used[name]); free.Cmp(requested) < 0 {
			tooFull = append(tooFull, string(name))
		}
	}
	switch {
	case len(tooSmall) > 0:
		return Reason{Kind: TooSmall, Detail: strings.Join(tooSmall, ", ")}
	case len(tooFull) > 0:
		return Reason{Kind: TooFull, Detail: strings.Join(tooFull, ", ")}
	default:
		return Reason{}
	}
}

// AnyHas reports whether any node has a resource.
func AnyHas(nodes []corev1.Node, name corev1.ResourceName) bool {
	return slices.ContainsFunc(nodes, func(node corev1.Node) bool {
		quantity := node.Status.Allocatable[name]
		return !quantity.IsZero()
	})
}

// Use adds what a pod requests to what is used on its node. A pod that has no
// node, or has finished, uses nothing.
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
