// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var realNode = &corev1.Node{
	ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{"trireme.local/real-node": "true"}},
	Status:     corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
}

// sizes gives the GPUs of every fake node by its name.
func sizes(t *testing.T, client *fake.Clientset) map[string]int64 {
	t.Helper()
	nodes, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for _, node := range nodes.Items {
		if node.Name == realNode.Name {
			if diff := cmp.Diff(realNode, &node); diff != "" {
				t.Errorf("the real node was changed (-want +got):\n%s", diff)
			}
			continue
		}
		gpus := node.Status.Capacity["nvidia.com/gpu"]
		found[node.Name] = gpus.Value()
	}
	if len(nodes.Items) != len(found)+1 {
		t.Error("the real node is gone")
	}
	return found
}

func TestFakeNodes(t *testing.T) {
	type request struct{ count, gpus int }
	tests := map[string]struct {
		requests []request
		want     map[string]int64
		// wantWrites are the creations and deletions of the last request.
		wantWrites []string
	}{
		"none": {
			requests: []request{{0, 8}}, want: map[string]int64{},
		},
		"three": {
			requests:   []request{{3, 8}},
			want:       map[string]int64{"fake-000": 8, "fake-001": 8, "fake-002": 8},
			wantWrites: []string{"create", "create", "create"},
		},
		"without GPUs": {
			requests: []request{{1, 0}}, want: map[string]int64{"fake-000": 0},
			wantWrites: []string{"create"},
		},
		"the same again changes nothing": {
			requests: []request{{2, 8}, {2, 8}}, want: map[string]int64{"fake-000": 8, "fake-001": 8},
		},
		"the same again without GPUs changes nothing": {
			requests: []request{{2, 0}, {2, 0}}, want: map[string]int64{"fake-000": 0, "fake-001": 0},
		},
		"growing leaves those that are there": {
			requests: []request{{1, 8}, {3, 8}}, want: map[string]int64{"fake-000": 8, "fake-001": 8, "fake-002": 8},
			wantWrites: []string{"create", "create"},
		},
		"shrinking removes the last": {
			requests: []request{{3, 8}, {1, 8}}, want: map[string]int64{"fake-000": 8},
			wantWrites: []string{"delete", "delete"},
		},
		"shrinking to none": {
			requests: []request{{2, 8}, {0, 8}}, want: map[string]int64{},
			wantWrites: []string{"delete", "delete"},
		},
		"another number of GPUs replaces the nodes": {
			requests: []request{{2, 8}, {2, 4}}, want: map[string]int64{"fake-000": 4, "fake-001": 4},
			wantWrites: []string{"delete", "delete", "create", "create"},
		},
		"GPUs taken away altogether": {
			requests: []request{{1, 8}, {1, 0}}, want: map[string]int64{"fake-000": 0},
			wantWrites: []string{"delete", "create"},
		},
		"fewer nodes with more GPUs": {
			requests: []request{{2, 4}, {1, 8}}, want: map[string]int64{"fake-000": 8},
			wantWrites: []string{"delete", "delete", "create"},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			client := fake.NewClientset(realNode.DeepCopy())
			for _, r := range test.requests {
				client.ClearActions()
				if err := FakeNodes(context.Background(), client, r.count, r.gpus); err != nil {
					t.Fatal(err)
				}
			}
			var writes []string
			for _, action := range client.Actions() {
				if action.GetVerb() != "list" {
					writes = append(writes, action.GetVerb())
				}
			}
			if diff := cmp.Diff(test.wantWrites, writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, sizes(t, client)); diff != "" {
				t.Errorf("fake nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFakeNodeIsMarked(t *testing.T) {
	client := fake.NewClientset()
	if err := FakeNodes(context.Background(), client, 1, 8); err != nil {
		t.Fatal(err)
	}
	node, err := client.CoreV1().Nodes().Get(context.Background(), "fake-000", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := node.Annotations["kwok.x-k8s.io/node"]; got != "fake" {
		t.Errorf("annotation is %q: kwok would not play this node", got)
	}
	wantTaint := corev1.Taint{Key: "kwok.x-k8s.io/node", Value: "fake", Effect: corev1.TaintEffectNoSchedule}
	if !slices.Contains(node.Spec.Taints, wantTaint) {
		t.Errorf("taints are %v: pods that did not ask to be simulated would come here", node.Spec.Taints)
	}
	if node.Labels[FakeNodeLabel] != "true" || node.Labels[corev1.LabelHostname] != "fake-000" {
		t.Errorf("labels are %v", node.Labels)
	}
	// The scheduler goes by what is allocatable.
	if diff := cmp.Diff(node.Status.Capacity, node.Status.Allocatable); diff != "" {
		t.Errorf("capacity and allocatable differ:\n%s", diff)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, "nvidia.com/gpu"} {
		if quantity := node.Status.Allocatable[name]; quantity.IsZero() {
			t.Errorf("the node has no %s", name)
		}
	}
}

func TestFakeNodesSaysWhatFailed(t *testing.T) {
	refused := errors.New("refused")
	for verb, want := range map[string]string{"list": "list fake nodes", "create": "create fake node fake-001", "delete": "delete fake node fake-000"} {
		t.Run(verb, func(t *testing.T) {
			client := fake.NewClientset()
			if err := FakeNodes(context.Background(), client, 1, 8); err != nil {
				t.Fatal(err)
			}
			client.PrependReactor(verb, "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
			gpus := 8
			if verb == "delete" {
				gpus = 4
			}
			err := FakeNodes(context.Background(), client, 2, gpus)
			if !errors.Is(err, refused) || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q and the cause", err, want)
			}
		})
	}
}

func TestCurrentFakeNodes(t *testing.T) {
	client := fake.NewClientset()
	for _, want := range []struct{ count, gpus int }{{0, 8}, {3, 4}} {
		if err := FakeNodes(t.Context(), client, want.count, want.gpus); err != nil {
			t.Fatal(err)
		}
		if count, gpus, err := CurrentFakeNodes(t.Context(), client); count != want.count || gpus != want.gpus || err != nil {
			t.Errorf("%d nodes with %d GPUs (%v), want %d with %d", count, gpus, err, want.count, want.gpus)
		}
	}
}
