// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func requesting(pairs ...string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: amounts(pairs...)}}}}}
}

func TestCheck(t *testing.T) {
	gpuTaint := corev1.Taint{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}
	tests := map[string]struct {
		pod  *corev1.Pod
		node func(*corev1.Node)
		used corev1.ResourceList
		want Reason
		text string
	}{
		"a pod that fits exactly":     {pod: requesting("cpu", "4", "memory", "8Gi")},
		"a pod without requests":      {pod: requesting()},
		"a resource of zero":          {pod: requesting("nvidia.com/gpu", "0")},
		"a pod beside others":         {pod: requesting("cpu", "2"), used: amounts("cpu", "2")},
		"a node that is full":         {pod: requesting("cpu", "2"), used: amounts("cpu", "3"), want: Reason{TooFull, "cpu"}, text: "too full: cpu"},
		"a node that is too small":    {pod: requesting("cpu", "5", "memory", "9Gi"), want: Reason{TooSmall, "cpu, memory"}, text: "too small: cpu, memory"},
		"too small comes before full": {pod: requesting("cpu", "2", "nvidia.com/gpu", "1"), used: amounts("cpu", "3"), want: Reason{TooSmall, "nvidia.com/gpu"}, text: "too small: nvidia.com/gpu"},
		"a node that is cordoned":     {pod: requesting(), node: func(node *corev1.Node) { node.Spec.Unschedulable = true }, want: Reason{Kind: Cordoned}, text: "cordoned"},
		"a taint that only prefers": {pod: requesting(), node: func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}
		}},
		"a taint that is not tolerated":  {pod: requesting(), node: func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{gpuTaint} }, want: Reason{TaintNotTolerated, "nvidia.com/gpu=present:NoSchedule"}, text: "taint nvidia.com/gpu=present:NoSchedule is not tolerated"},
		"a taint that is tolerated":      {pod: tolerating(gpuTaint), node: func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{gpuTaint} }},
		"a selector that does not match": {pod: selecting("zone", "a"), want: Reason{SelectorMismatch, "zone=a"}, text: "no match for the node selector zone=a"},
		"a selector that matches":        {pod: selecting("zone", "a"), node: func(node *corev1.Node) { node.Labels = map[string]string{"zone": "a"} }},
		"an affinity that does not match": {pod: &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}},
			}}},
		}}}}, want: Reason{Kind: AffinityMismatch}, text: "no match for the node affinity"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: amounts("cpu", "4", "memory", "8Gi")}}
			if test.node != nil {
				test.node(node)
			}
			got := Check(node, test.pod, test.used)
			if got != test.want || got.String() != test.text || Fits(node, test.pod, test.used) != (test.want == Reason{}) {
				t.Errorf("got %#v (%s), want %#v (%s)", got, got, test.want, test.text)
			}
		})
	}
}

func tolerating(taint corev1.Taint) *corev1.Pod {
	pod := requesting()
	pod.Spec.Tolerations = []corev1.Toleration{{Key: taint.Key, Operator: corev1.TolerationOpExists}}
	return pod
}

func selecting(key, value string) *corev1.Pod {
	pod := requesting()
	pod.Spec.NodeSelector = map[string]string{key: value}
	return pod
}

func TestUse(t *testing.T) {
	onNode := func(phase corev1.PodPhase, node string) *corev1.Pod {
		pod := requesting("cpu", "1")
		pod.Spec.NodeName, pod.Status.Phase = node, phase
		return pod
	}
	used := map[string]corev1.ResourceList{}
	for _, pod := range []*corev1.Pod{
		onNode(corev1.PodRunning, "a"), onNode(corev1.PodPending, "a"), onNode(corev1.PodSucceeded, "a"), onNode(corev1.PodFailed, "a"), onNode(corev1.PodPending, ""),
	} {
		Use(used, pod)
	}
	if cpu := used["a"]["cpu"]; len(used) != 1 || cpu.String() != "2" {
		t.Errorf("used is %v", used)
	}
}
