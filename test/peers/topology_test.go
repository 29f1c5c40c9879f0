// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rackLabel is the node label that names the rack of a node.
const rackLabel = "trireme.local/rack"

// The first simulated node is alone in smallRack; all others are in largeRack. Kueue
// prefers the first of equal nodes in the order of these names, so that a job that
// requires no rack starts in the small one and does not fit there.
const (
	smallRack = "rack-1"
	largeRack = "rack-2"
)

// halfNodePod is the CPUs of a pod of which two fit on a simulated node: three
// fit in the large rack, but not in the small one.
const halfNodePod = 40

// createTopologyQueue labels the simulated nodes with their racks, and creates a
// LocalQueue for that many CPUs of them. Its ResourceFlavor has a Topology, so that
// Kueue chooses the nodes of jobs that request a topology domain.
func (place *place) createTopologyQueue(cpus int) {
	place.Helper()
	for i, node := range place.simulatedNodes() {
		rack := largeRack
		if i == 0 {
			rack = smallRack
		}
		place.moveNode(node, rack)
	}
	place.create(fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: %s}
spec:
  levels:
  - nodeLabel: %s
  - nodeLabel: %s
`, place.namespace, rackLabel, corev1.LabelHostname))
	place.createQueueOn(fmt.Sprintf(`{nodeLabels: {trireme.local/fake-node: "true"}, topologyName: %s}`, place.namespace), cpus)
}

// simulatedNodes returns the names of the simulated nodes, in order.
func (place *place) simulatedNodes() []string {
	place.Helper()
	var nodes corev1.NodeList
	if err := place.client.List(place.Context(), &nodes, client.HasLabels{"trireme.local/fake-node"}); err != nil {
		place.Fatal(err)
	}
	names := make([]string, 0, len(nodes.Items))
	for _, node := range nodes.Items {
		names = append(names, node.Name)
	}
	slices.Sort(names)
	if len(names) != simulatedNodes {
		place.Fatalf("the cluster has %d simulated nodes, want %d", len(names), simulatedNodes)
	}
	return names
}

// moveNode labels a node with another rack.
func (place *place) moveNode(name, rack string) {
	place.Helper()
	place.patch(corev1.SchemeGroupVersion.WithKind("Node"), name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, rackLabel, rack))
}

// isInRack checks that all pods of a job are on nodes of a rack.
func (place *place) isInRack(pods []corev1.Pod, rack string) error {
	for _, pod := range pods {
		var node corev1.Node
		if err := place.client.Get(place.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, &node); err != nil {
			return fmt.Errorf("read the node of pod %s: %w", pod.Name, err)
		}
		if have := node.Labels[rackLabel]; have != rack {
			return fmt.Errorf("pod %s is on node %s in rack %q, want %q", pod.Name, node.Name, have, rack)
		}
	}
	return nil
}

// podSet is what the tests read of a pod set of a Workload.
type podSet struct {
	Name            string `json:"name"`
	Count           int    `json:"count"`
	TopologyRequest struct {
		PodIndexLabel      string `json:"podIndexLabel"`
		SubGroupIndexLabel string `json:"subGroupIndexLabel"`
	} `json:"topologyRequest"`
}

// hasRanks checks that the workers have distinct indexes in the labels by which
// Kueue gives neighbouring ranks neighbouring nodes. Kueue ignores the order of the
// whole pod set if one pod lacks them. The rank of a single pod does not matter.
func (kind jobKind) hasRanks(place *place, name string) error {
	workload, err := kind.workload(place, name)
	if err != nil {
		return err
	}
	var admitted struct {
		Spec struct {
			PodSets []podSet `json:"podSets"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(workload.Object, &admitted); err != nil {
		return err
	}
	for _, set := range admitted.Spec.PodSets {
		if set.Count == 1 {
			continue
		}
		if set.TopologyRequest.PodIndexLabel == "" {
			return fmt.Errorf("Kueue names no label for the indexes of pod set %s", set.Name)
		}
		pods := map[string]string{}
		for _, pod := range place.pods(client.MatchingLabels{"kueue.x-k8s.io/podset": set.Name}) {
			index, group := pod.Labels[set.TopologyRequest.PodIndexLabel], pod.Labels[set.TopologyRequest.SubGroupIndexLabel]
			if index == "" || group == "" && set.TopologyRequest.SubGroupIndexLabel != "" {
				return fmt.Errorf("pod %s lacks one of the labels %+v", pod.Name, set.TopologyRequest)
			}
			if other, taken := pods[group+"/"+index]; taken {
				return fmt.Errorf("pods %s and %s have the same rank", pod.Name, other)
			}
			pods[group+"/"+index] = pod.Name
		}
		if len(pods) != set.Count {
			return fmt.Errorf("pod set %s has %d pods, want %d", set.Name, len(pods), set.Count)
		}
	}
	return nil
}

// runsInOneRack requires one rack, where the scheduler alone would choose three
// nodes, because it prefers empty ones.
func (kind jobKind) runsInOneRack(t *testing.T) {
	place := newPlace(t)
	place.createTopologyQueue(jobPods * halfNodePod)
	kind.submit(place, jobShape{name: "job", cpus: halfNodePod, topology: rackLabel})
	place.eventually("the job runs", kind.runs(place, "job"))
	if err := place.isInRack(place.pods(kind.pods("job")), largeRack); err != nil {
		t.Error(err)
	}
	if err := kind.hasRanks(place, "job"); err != nil {
		t.Error(err)
	}
}

// waitsForRack fits on the nodes, but in no rack until one grows.
func (kind jobKind) waitsForRack(t *testing.T) {
	place := newPlace(t)
	place.createTopologyQueue(jobPods * largePod)
	kind.submit(place, jobShape{name: "job", cpus: largePod, topology: rackLabel})
	place.eventually("the job waits", kind.waits(place, "job", "allows to fit only"))
	place.stays("the job waits", patience, kind.waits(place, "job", "allows to fit only"))
	place.moveNode(place.simulatedNodes()[0], largeRack)
	place.eventually("the job runs", kind.runs(place, "job"))
	if err := place.isInRack(place.pods(kind.pods("job")), largeRack); err != nil {
		t.Error(err)
	}
}
