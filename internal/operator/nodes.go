// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/nodes"
)

// +kubebuilder:rbac:groups="",resources=events,verbs=list

const (
	// pageSize is the size of list pages from the API server.
	pageSize = 500
	// maxNodesCounted limits the cost of a gang timeout: the pods of at most this many
	// nodes are listed, and never all pods of the cluster.
	maxNodesCounted = 100
)

// countNodes counts the nodes where an unscheduled pod would fit, and checks whether the
// autoscaler adds nodes. It is called once, when the gang timeout has passed, and reads
// from the API server: the cache has no pods of other users.
func (r *Reconciler) countNodes(ctx context.Context, j *job.Job, observed *diagnosis.Observed) error {
	waiting := unscheduled(observed)
	if !observed.ScaleUp && len(waiting) > 0 {
		coming, err := r.isScalingUp(ctx, j, waiting)
		if err != nil {
			return err
		}
		if observed.ScaleUp = coming; coming {
			return nil
		}
	}
	count := &diagnosis.NodeCount{Unfit: map[nodes.Reason]int{}}
	observed.FreeNodes = count
	if len(waiting) == 0 {
		return nil
	}
	wanted := largest(waiting)
	fitting, err := r.nodesThatFit(ctx, wanted, count.Unfit)
	if err != nil {
		return err
	}
	count.Fitting, count.Checked = len(fitting), min(len(fitting), maxNodesCounted)
	for _, node := range fitting[:count.Checked] {
		used, err := r.requestsOn(ctx, node.Name)
		if err != nil {
			return err
		}
		if reason := nodes.Check(node, wanted, used); reason.Kind == "" {
			count.Free++
		} else {
			count.Unfit[reason]++
		}
	}
	return nil
}

// nodesThatFit are the nodes where the pod would fit if no other pod ran there. Other
// nodes are counted by reason.
func (r *Reconciler) nodesThatFit(ctx context.Context, pod *corev1.Pod, unfit map[nodes.Reason]int) (fitting []*corev1.Node, err error) {
	err = pages(ctx, r.Live, &corev1.NodeList{}, func(list client.ObjectList) {
		for _, node := range list.(*corev1.NodeList).Items {
			if reason := nodes.Check(&node, pod, nil); reason.Kind == "" {
				fitting = append(fitting, &node)
			} else {
				unfit[reason]++
			}
		}
	})
	return fitting, err
}

func unscheduled(observed *diagnosis.Observed) (pods []*corev1.Pod) {
	for _, role := range [][]*corev1.Pod{observed.Workers, observed.Launchers} {
		for _, pod := range role {
			if pod.Spec.NodeName == "" {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

// largest is a worker if one waits: it requests more than the launcher.
func largest(pods []*corev1.Pod) *corev1.Pod { return pods[0] }

// +kubebuilder:rbac:groups="",resources=events,verbs=list

// isScalingUp reports whether the cluster autoscaler adds nodes for the pods.
func (r *Reconciler) isScalingUp(ctx context.Context, j *job.Job, pods []*corev1.Pod) (bool, error) {
	waiting := map[string]bool{}
	for _, pod := range pods {
		waiting[string(pod.UID)] = true
	}
	found := false
	err := pages(ctx, r.Live, &corev1.EventList{}, func(list client.ObjectList) {
		for _, event := range list.(*corev1.EventList).Items {
			found = found || waiting[string(event.InvolvedObject.UID)]
		}
	}, client.InNamespace(j.Namespace), client.MatchingFields{"reason": "TriggeredScaleUp", "involvedObject.kind": "Pod"})
	return found, err
}

// requestsOn sums the resource requests of the pods on a node. The API server has an
// index by node in its watch cache.
func (r *Reconciler) requestsOn(ctx context.Context, node string) (corev1.ResourceList, error) {
	var pods corev1.PodList
	fromWatchCache := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := r.Live.List(ctx, &pods, fromWatchCache, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list the pods on node %s: %w", node, err)
	}
	used := map[string]corev1.ResourceList{}
	for i := range pods.Items {
		nodes.Use(used, &pods.Items[i])
	}
	return used[node], nil
}

// pages reads a list page by page.
func pages(ctx context.Context, reader client.Reader, list client.ObjectList, each func(client.ObjectList), options ...client.ListOption) error {
	for {
		if err := reader.List(ctx, list, append(options, client.Limit(pageSize), client.Continue(list.GetContinue()))...); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		each(list)
		if list.GetContinue() == "" {
			return nil
		}
	}
}
