package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/diagnosis"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/nodes"
)

// +kubebuilder:rbac:groups="",resources=events,verbs=list

// pageSize of lists past the cache.
const pageSize = 500

// countNodes counts the nodes that would take one of the pods that wait, and
// looks whether more are coming. It is done once, when a gang has waited for too
// long, past the cache: the cache has no pods of others.
func (reconciler *Reconciler) countNodes(ctx context.Context, made *job.Job, seen *diagnosis.Observed) error {
	waiting := unplaced(seen)
	if !seen.ScaleUp && len(waiting) > 0 {
		coming, err := reconciler.isScalingUp(ctx, made, waiting)
		if err != nil {
			return err
		}
		if seen.ScaleUp = coming; coming {
			return nil
		}
	}
	free := 0
	seen.FreeNodes = &free
	if len(waiting) == 0 {
		return nil
	}
	used, err := reconciler.usedByPods(ctx)
	if err != nil {
		return err
	}
	wanted := largest(waiting)
	return pages(ctx, reconciler.Live, &corev1.NodeList{}, func(list client.ObjectList) {
		for _, node := range list.(*corev1.NodeList).Items {
			if nodes.Takes(&node, wanted, used[node.Name]) {
				free++
			}
		}
	})
}

func unplaced(seen *diagnosis.Observed) (pods []*corev1.Pod) {
	for _, role := range [][]*corev1.Pod{seen.Workers, seen.Launchers} {
		for _, pod := range role {
			if pod.Spec.NodeName == "" {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

// largest is a worker where one waits: it asks for more than the launcher.
func largest(pods []*corev1.Pod) *corev1.Pod { return pods[0] }

// +kubebuilder:rbac:groups="",resources=events,verbs=list

// isScalingUp tells whether the cluster's autoscaler makes nodes for the pods.
func (reconciler *Reconciler) isScalingUp(ctx context.Context, made *job.Job, pods []*corev1.Pod) (bool, error) {
	waiting := map[string]bool{}
	for _, pod := range pods {
		waiting[string(pod.UID)] = true
	}
	found := false
	err := pages(ctx, reconciler.Live, &corev1.EventList{}, func(list client.ObjectList) {
		for _, event := range list.(*corev1.EventList).Items {
			found = found || waiting[string(event.InvolvedObject.UID)]
		}
	}, client.InNamespace(made.Namespace), client.MatchingFields{"reason": "TriggeredScaleUp", "involvedObject.kind": "Pod"})
	return found, err
}

// usedByPods is what the pods on each node ask for.
func (reconciler *Reconciler) usedByPods(ctx context.Context) (map[string]corev1.ResourceList, error) {
	used := map[string]corev1.ResourceList{}
	err := pages(ctx, reconciler.Live, &corev1.PodList{}, func(list client.ObjectList) {
		for _, pod := range list.(*corev1.PodList).Items {
			nodes.Use(used, &pod)
		}
	})
	return used, err
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
