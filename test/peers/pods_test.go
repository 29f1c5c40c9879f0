// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// simulatedNodes have 96 CPUs each, so that each has room for one pod of
// largePod CPUs.
const (
	simulatedNodes = 3
	largePod       = 60
)

// simulatedPodSpec is of a pod that runs as soon as it has a node, and until it is
// deleted unless an annotation says for how long.
func simulatedPodSpec(cpus int) corev1.PodSpec {
	return corev1.PodSpec{
		NodeSelector: map[string]string{"trireme.local/fake-node": "true"},
		Tolerations:  []corev1.Toleration{{Key: "kwok.x-k8s.io/node", Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "main", Image: "trireme.local/simulated",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}},
		}},
	}
}

// inline is a value in the form that any line of a manifest takes.
func inline(value any) string {
	text, err := yaml.Marshal(value)
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		panic(err) // a value of ours
	}
	return string(text)
}

func (place *place) createPod(pod *corev1.Pod) {
	place.Helper()
	pod.Namespace = place.namespace
	if err := place.client.Create(place.Context(), pod); err != nil {
		place.Fatalf("create pod %s: %v", pod.Name, err)
	}
}

func (place *place) deletePod(pod *corev1.Pod) {
	place.Helper()
	if err := place.client.Delete(place.Context(), pod); err != nil {
		place.Fatalf("delete pod %s: %v", pod.Name, err)
	}
}

// pods are those with the labels.
func (place *place) pods(labels client.MatchingLabels) []corev1.Pod {
	place.Helper()
	var pods corev1.PodList
	if err := place.client.List(place.Context(), &pods, client.InNamespace(place.namespace), labels); err != nil {
		place.Fatal(err)
	}
	return pods.Items
}

// run asks for that many pods with the labels, all of them running.
func (place *place) run(labels client.MatchingLabels, count int) error {
	pods := place.pods(labels)
	if len(pods) != count {
		return fmt.Errorf("there are %d pods with %v, want %d", len(pods), labels, count)
	}
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %s is %s: %s", pod.Name, pod.Status.Phase, waitingFor(pod))
		}
	}
	return nil
}

// unplaced asks for that many pods with the labels, none of them on a node.
func (place *place) unplaced(labels client.MatchingLabels, count int) error {
	pods := place.pods(labels)
	if len(pods) != count {
		return fmt.Errorf("there are %d pods with %v, want %d", len(pods), labels, count)
	}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			return fmt.Errorf("pod %s was placed on %s, and not all were", pod.Name, pod.Spec.NodeName)
		}
	}
	return nil
}

// waitingFor is what the scheduler says about a pod that it does not place.
func waitingFor(pod corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	return ""
}

func simulatedPod(name string, cpus int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: simulatedPodSpec(cpus)}
}
