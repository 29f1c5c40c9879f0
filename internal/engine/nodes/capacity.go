// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Amount is how much of a resource a node has for pods, and how much of it they request.
type Amount struct {
	Allocatable float64 `json:"allocatable"`
	Requested   float64 `json:"requested"`
}

// Capacity is what a node has, and what its pods request.
type Capacity struct {
	Name string `json:"name"`
	// Ready and Schedulable: new pods are only scheduled on nodes that are both.
	Ready       bool `json:"ready"`
	Schedulable bool `json:"schedulable"`
	// CPU in cores, Memory in bytes, GPU of all vendors.
	CPU    Amount `json:"cpu"`
	Memory Amount `json:"memory"`
	GPU    Amount `json:"gpu"`
}

// Capacities returns the capacity of nodes, those with the most GPUs first. used is what the
// pods on each node request.
func Capacities(nodes []corev1.Node, used map[string]corev1.ResourceList) []Capacity {
	capacities := make([]Capacity, 0, len(nodes))
	for i := range nodes {
		node := &nodes[i]
		allocatable, requested := node.Status.Allocatable, used[node.Name]
		capacities = append(capacities, Capacity{
			Name: node.Name, Ready: isReady(node), Schedulable: !node.Spec.Unschedulable,
			CPU:    amountOf(corev1.ResourceCPU, allocatable, requested),
			Memory: amountOf(corev1.ResourceMemory, allocatable, requested),
			GPU:    Amount{job.GPUs(allocatable).AsApproximateFloat64(), job.GPUs(requested).AsApproximateFloat64()},
		})
	}
	slices.SortFunc(capacities, func(a, b Capacity) int {
		return cmp.Or(cmp.Compare(b.GPU.Allocatable, a.GPU.Allocatable), cmp.Compare(a.Name, b.Name))
	})
	return capacities
}

func amountOf(name corev1.ResourceName, allocatable, requested corev1.ResourceList) Amount {
	return Amount{allocatable.Name(name, "").AsApproximateFloat64(), requested.Name(name, "").AsApproximateFloat64()}
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}
