// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCapacities(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus, cordoned bool, pairs ...string) corev1.Node {
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: cordoned},
			Status: corev1.NodeStatus{Allocatable: amounts(pairs...), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	nodes := []corev1.Node{
		node("b", corev1.ConditionTrue, false, "cpu", "4", "memory", "8Gi"),
		node("a", corev1.ConditionFalse, true, "cpu", "2500m", "memory", "1Gi"),
		node("gpus", corev1.ConditionTrue, false, "cpu", "64", "memory", "1Ti", "nvidia.com/gpu", "8"),
	}
	used := map[string]corev1.ResourceList{"gpus": amounts("cpu", "500m", "memory", "512Gi", "nvidia.com/gpu", "6"), "b": amounts("cpu", "5")}
	want := []Capacity{
		{Name: "gpus", Ready: true, Schedulable: true, CPU: Amount{64, 0.5}, Memory: Amount{1 << 40, 1 << 39}, GPU: Amount{8, 6}},
		{Name: "a", CPU: Amount{2.5, 0}, Memory: Amount{1 << 30, 0}},
		{Name: "b", Ready: true, Schedulable: true, CPU: Amount{4, 5}, Memory: Amount{8 << 30, 0}},
	}
	if diff := cmp.Diff(want, Capacities(nodes, used)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
