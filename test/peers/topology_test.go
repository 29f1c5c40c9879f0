package peers

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rackLabel is the node label that names the rack of a node.
const rackLabel = "trireme.local/rack"

// The first simulated node is alone in smallRack; all others are in largeRack.
const (
	smallRack = "small"
	largeRack = "large"
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
