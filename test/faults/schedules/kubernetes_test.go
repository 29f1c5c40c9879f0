// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// step is something that can happen next.
type step struct {
	name   string
	weight int
	do     func()
}

// kubernetes are the steps that Kubernetes could take now. None of them is ever in a
// hurry: how late they are is the schedule's to say.
func (simulation *simulation) kubernetes() (steps []step) {
	add := func(name string, do func()) {
		if do != nil {
			steps = append(steps, step{name, simulation.profile.pace, do})
		}
	}
	for _, object := range simulation.server.all("Pod") {
		pod := object.(*corev1.Pod)
		add("scheduler: "+pod.Name, simulation.placePod(pod))
		add("kubelet: "+pod.Name, simulation.runPod(pod))
		add("node lifecycle: "+pod.Name, simulation.losePod(pod))
	}
	return append(steps, simulation.collectGarbage()...)
}

// collectGarbage deletes what has lost its owner, and what a deletion in the
// foreground waits for.
func (simulation *simulation) collectGarbage() (steps []step) {
	all := simulation.server.everything()
	owners, dependents := map[types.UID]client.Object{}, map[types.UID]int{}
	for _, object := range all {
		owners[object.GetUID()] = object
		for _, owner := range object.GetOwnerReferences() {
			dependents[owner.UID]++
		}
	}
	for _, object := range all {
		name := fmt.Sprintf("garbage collector: %s %s", kindOf(object), object.GetName())
		if owner := metav1.GetControllerOf(object); owner != nil && object.GetDeletionTimestamp() == nil {
			there := owners[owner.UID]
			if there == nil || slices.Contains(there.GetFinalizers(), foreground) {
				steps = append(steps, step{name, 4, func() { simulation.delete(object, metav1.DeletePropagationBackground) }})
			}
		}
		if slices.Contains(object.GetFinalizers(), foreground) && dependents[object.GetUID()] == 0 {
			steps = append(steps, step{name, 4, func() { simulation.withoutFinalizer(object, foreground) }})
		}
	}
	return steps
}

func (simulation *simulation) delete(object client.Object, policy metav1.DeletionPropagation) {
	_ = simulation.server.delete(kindOf(object), client.ObjectKeyFromObject(object), client.DeleteOptions{PropagationPolicy: &policy})
}

func (simulation *simulation) withoutFinalizer(object client.Object, name string) {
	next := object.DeepCopyObject().(client.Object)
	next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(one string) bool { return one == name }))
	simulation.server.replace(next)
}
