// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// view is a job with its current pods.
type view struct {
	job      *job.Job
	observed *Observed
	// launcher is the newest launcher pod; nil if there is none.
	launcher *corev1.Pod
	// workers that exist, by index.
	workers map[int32]*corev1.Pod
	// restart is how often the job was restarted, as the status counts it.
	restart int32
}

func newView(j *job.Job, previous *Previous, observed *Observed) *view {
	view := &view{job: j, observed: observed, workers: map[int32]*corev1.Pod{}}
	if previous.Restart != nil {
		view.restart = previous.Restart.Count
	}
	for _, pod := range observed.Launchers {
		if plan.RestartOf(pod) == view.restart && (view.launcher == nil || newer(pod, view.launcher)) {
			view.launcher = pod
		}
	}
	for _, pod := range observed.Workers {
		index, known := j.WorkerIndex(pod)
		if !known || j.Kind.Traits().RestartsAsWhole && plan.RestartOf(pod) != view.restart {
			continue
		}
		if known := view.workers[index]; known == nil || newer(pod, known) {
			view.workers[index] = pod
		}
	}
	return view
}

func newer(one, other *corev1.Pod) bool {
	if order := one.CreationTimestamp.Compare(other.CreationTimestamp.Time); order != 0 {
		return order > 0
	}
	// Of two pods created in the same second, one that has finished is the older.
	if one, other := isPodFinished(one), isPodFinished(other); one != other {
		return other
	}
	return one.Name > other.Name
}

func isPodFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// sortedWorkers are the workers that exist, in the order of their index.
func (v *view) sortedWorkers() []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(v.workers))
	for index := range v.job.Worker.Replicas {
		if pod := v.workers[index]; pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// pods are the workers and the launcher of this start.
func (v *view) pods() []*corev1.Pod {
	pods := v.sortedWorkers()
	if v.launcher != nil {
		pods = append(pods, v.launcher)
	}
	return pods
}

// podTitle names a pod by its role, its name and its node.
func (v *view) podTitle(pod *corev1.Pod) string {
	role := "the launcher"
	switch pod.Labels[training.LabelReplicaType] {
	case training.RoleWorker:
		index, _ := v.job.WorkerIndex(pod)
		role = fmt.Sprintf("worker %d", index)
	case training.RoleInitializer:
		role = "the initializer"
	}
	if pod.Spec.NodeName == "" {
		return fmt.Sprintf("%s (pod %s)", role, pod.Name)
	}
	return fmt.Sprintf("%s (pod %s on node %s)", role, pod.Name, pod.Spec.NodeName)
}

// counts are the numbers of active, succeeded and failed pods of each role. A pod that
// is being deleted stays active: Kueue must not reuse its quota before the pod is
// removed.
func (v *view) counts() (launcher, worker Counts) {
	return count(v.observed.Launchers), count(v.observed.Workers)
}

// stepCounts are the numbers of pods of each step.
func (v *view) stepCounts() (counts []Counts) {
	for step := range v.job.Steps {
		var pods []*corev1.Pod
		for _, pod := range v.observed.Initializers {
			if plan.StepOf(pod) == step {
				pods = append(pods, pod)
			}
		}
		counts = append(counts, count(pods))
	}
	return counts
}

func count(pods []*corev1.Pod) (counts Counts) {
	for _, pod := range pods {
		switch pod.Status.Phase {
		case corev1.PodSucceeded:
			counts.Succeeded++
		case corev1.PodFailed:
			counts.Failed++
		default:
			counts.Active++
			if isReady(pod) {
				counts.Ready++
			}
		}
	}
	return counts
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func hasCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	current := podCondition(pod, kind)
	return current != nil && current.Status == corev1.ConditionTrue
}

func isReady(pod *corev1.Pod) bool {
	return hasCondition(pod, corev1.PodReady) && pod.DeletionTimestamp == nil
}

func isScheduled(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }

// mainStatus is the status of the pod's main container, the first of its spec.
func mainStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	if len(pod.Spec.Containers) == 0 {
		return nil
	}
	index := slices.IndexFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
		return status.Name == pod.Spec.Containers[0].Name
	})
	if index < 0 {
		return nil
	}
	return &pod.Status.ContainerStatuses[index]
}

// containerStatuses are the statuses of a pod's containers, in the order in which they
// terminated: the first that failed is the cause of the others' failures.
func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	ended := func(status corev1.ContainerStatus) int64 {
		if status.State.Terminated != nil && !status.State.Terminated.FinishedAt.IsZero() {
			return status.State.Terminated.FinishedAt.Unix()
		}
		return 1 << 62
	}
	slices.SortStableFunc(statuses, func(a, b corev1.ContainerStatus) int { return cmp.Compare(ended(a), ended(b)) })
	return statuses
}
