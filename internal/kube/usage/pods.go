// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// reportedPods are the pods of a job in a report: the newest launcher, and the newest pod
// of each worker.
type reportedPods struct {
	launcher *corev1.Pod
	workers  map[int32]*corev1.Pod
}

// reportedPodsOf selects pods by their labels. It skips pods of other roles, and of other
// namespaces than the first.
func reportedPodsOf(pods []corev1.Pod) reportedPods {
	selected := reportedPods{workers: map[int32]*corev1.Pod{}}
	for i := range pods {
		pod := &pods[i]
		if pod.Namespace == "" || pod.Namespace != pods[0].Namespace {
			continue
		}
		switch pod.Labels[training.LabelReplicaType] {
		case training.RoleLauncher:
			selected.launcher = newest(selected.launcher, pod)
		case training.RoleWorker:
			if index, known := jobOf(pod).WorkerIndex(pod); known {
				selected.workers[index] = newest(selected.workers[index], pod)
			}
		}
	}
	return selected
}

// jobOf returns a model with what is needed for the index of a worker.
func jobOf(pod *corev1.Pod) *job.Job {
	model := &job.Job{Kind: job.KindTrainJob, Name: pod.Labels[training.LabelJobName]}
	for _, kind := range []job.Kind{job.KindMPIJob, job.KindJobSet} {
		if pod.Labels[training.LabelJobType] == kind.Type() {
			model.Kind = kind
		}
	}
	model.Worker.Replicas = math.MaxInt32
	return model
}

func newest(one, other *corev1.Pod) *corev1.Pod {
	if one == nil || one.CreationTimestamp.Before(&other.CreationTimestamp) {
		return other
	}
	return one
}

// all returns the pods in the order of a report.
func (p reportedPods) all() []*corev1.Pod {
	var pods []*corev1.Pod
	if p.launcher != nil {
		pods = append(pods, p.launcher)
	}
	for _, index := range p.indices() {
		pods = append(pods, p.workers[index])
	}
	return pods
}

func (p reportedPods) indices() []int32 {
	indices := make([]int32, 0, len(p.workers))
	for index := range p.workers {
		indices = append(indices, index)
	}
	slices.Sort(indices)
	return indices
}

// report returns a report with the measured pods.
func (p reportedPods) report(source string, measured map[string]Pod) *Report {
	report := &Report{Source: source, Workers: []Pod{}}
	if p.launcher != nil {
		launcher := reported(p.launcher.Name, nil, measured)
		report.Launcher = &launcher
	}
	for _, index := range p.indices() {
		report.Workers = append(report.Workers, reported(p.workers[index].Name, &index, measured))
	}
	if len(p.all()) == 0 {
		report.Message = "the job has no pods to measure: they do not exist yet, or were deleted"
	}
	return report
}

// reported returns a pod with empty lists instead of nil, so that JSON has no null.
func reported(name string, index *int32, measured map[string]Pod) Pod {
	pod := measured[name]
	pod.PodName, pod.Index = name, index
	for _, samples := range []*[]Sample{&pod.CPU, &pod.Memory, &pod.GPU, &pod.GPUMemory, &pod.NetworkTransmit, &pod.NetworkReceive} {
		if *samples == nil {
			*samples = []Sample{}
		}
	}
	return pod
}
