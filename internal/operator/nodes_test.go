// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/nodes"
)

// A gang timeout costs the API server a bounded amount: never a list of all pods of the
// cluster.
func TestCountNodes(t *testing.T) {
	tooSmall, tooFull := nodes.Reason{Kind: nodes.TooSmall, Detail: "cpu"}, nodes.Reason{Kind: nodes.TooFull, Detail: "cpu"}
	for name, test := range map[string]struct {
		nodes int
		want  diagnosis.NodeCount
	}{
		"few nodes":  {nodes: 3, want: diagnosis.NodeCount{Fitting: 3, Checked: 3, Free: 2, Unfit: map[nodes.Reason]int{tooSmall: 1, tooFull: 1}}},
		"many nodes": {nodes: 250, want: diagnosis.NodeCount{Fitting: 250, Checked: maxNodesCounted, Free: maxNodesCounted - 1, Unfit: map[nodes.Reason]int{tooSmall: 1, tooFull: 1}}},
		"no node":    {want: diagnosis.NodeCount{Unfit: map[nodes.Reason]int{tooSmall: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{taking("other", "node-000", "8"), sized("small", "1")}
			for i := range test.nodes {
				objects = append(objects, sized(fmt.Sprintf("node-%03d", i), "8"))
			}
			lists := 0
			live := fake.NewClientBuilder().WithObjects(objects...).
				WithIndex(&corev1.Pod{}, "spec.nodeName", func(object client.Object) []string { return []string{object.(*corev1.Pod).Spec.NodeName} }).
				WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, reader client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					var asked client.ListOptions
					asked.ApplyOptions(options)
					if _, ofPods := list.(*corev1.PodList); ofPods {
						lists++
						if asked.FieldSelector == nil {
							return errors.New("all pods are listed")
						}
					}
					return reader.List(ctx, list, options...)
				}}).Build()
			reconciler := &Reconciler{Live: live}
			observed := &diagnosis.Observed{ScaleUp: true, Workers: []*corev1.Pod{taking("waits", "", "4")}}
			if err := reconciler.countNodes(t.Context(), &job.Job{Namespace: "team"}, observed); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, observed.FreeNodes); diff != "" {
				t.Error(diff)
			}
			if lists != test.want.Checked {
				t.Errorf("pods were listed %d times for %d nodes", lists, test.want.Checked)
			}
		})
	}
}

func sized(name, cpu string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
}

func taking(name, node, cpu string) *corev1.Pod {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}}},
	}}
}
