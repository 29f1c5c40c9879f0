// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"fmt"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
)

// FakeNodeLabel is the label of simulated nodes.
const FakeNodeLabel = "trireme.local/fake-node"

// FakeNodes creates and deletes simulated nodes until there are exactly count, with the
// given number of GPUs each. kwok simulates their kubelets.
func FakeNodes(ctx context.Context, client kubernetes.Interface, count, gpus int) error {
	nodes := client.CoreV1().Nodes()
	existing, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: FakeNodeLabel})
	if err != nil {
		return fmt.Errorf("list fake nodes: %w", err)
	}
	wanted := make(map[string]*corev1.Node, count)
	for i := range count {
		node := fakeNode(i, gpus)
		wanted[node.Name] = node
	}
	for i := range existing.Items {
		have := &existing.Items[i]
		want, keep := wanted[have.Name]
		if keep && have.Status.Capacity.Name(gpuResource, resource.DecimalSI).Cmp(*want.Status.Capacity.Name(gpuResource, resource.DecimalSI)) == 0 {
			delete(wanted, have.Name)
			continue
		}
		if err := nodes.Delete(ctx, have.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete fake node %s: %w", have.Name, err)
		}
	}
	for i := range count {
		node, missing := wanted[fakeNodeName(i)]
		if !missing {
			continue
		}
		if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create fake node %s: %w", node.Name, err)
		}
	}
	return nil
}

// usualGPUs is the number of GPUs of a common GPU server.
const usualGPUs = 8

// CurrentFakeNodes returns the number of simulated nodes, and of GPUs of each.
func CurrentFakeNodes(ctx context.Context, client kubernetes.Interface) (count, gpus int, err error) {
	existing, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: FakeNodeLabel})
	if err != nil {
		return 0, 0, fmt.Errorf("list fake nodes: %w", err)
	}
	if len(existing.Items) == 0 {
		return 0, usualGPUs, nil
	}
	capacity := existing.Items[0].Status.Capacity[gpuResource]
	return len(existing.Items), int(capacity.Value()), nil
}

const gpuResource corev1.ResourceName = "nvidia.com/gpu"

func fakeNodeName(i int) string { return fmt.Sprintf("fake-%03d", i) }

// fakeNode has the size of a common GPU server. Its taint keeps pods away that do not
// tolerate it: they would never really run.
func fakeNode(i, gpus int) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("96"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("250"),
	}
	if gpus > 0 {
		capacity[gpuResource] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	}
	name := fakeNodeName(i)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{component.FakeNodeAnnotation: component.FakeNodeValue},
			Labels: map[string]string{
				FakeNodeLabel:          "true",
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: runtime.GOARCH,
			},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: component.FakeNodeAnnotation, Value: component.FakeNodeValue, Effect: corev1.TaintEffectNoSchedule,
		}}},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}
