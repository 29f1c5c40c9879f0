package usage

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// places are the pods of a job that are reported: the newest launcher, and of each
// worker the newest.
type places struct {
	launcher *corev1.Pod
	workers  map[int32]*corev1.Pod
}

// placesOf tells pods apart by their labels. Those of other roles are left out, and
// those of other namespaces than the first.
func placesOf(pods []corev1.Pod) places {
	found := places{workers: map[int32]*corev1.Pod{}}
	for i := range pods {
		pod := &pods[i]
		if pod.Namespace == "" || pod.Namespace != pods[0].Namespace {
			continue
		}
		switch pod.Labels[training.LabelReplicaType] {
		case training.RoleLauncher:
			found.launcher = newest(found.launcher, pod)
		case training.RoleWorker:
			if index, known := jobOf(pod).WorkerIndex(pod); known {
				found.workers[index] = newest(found.workers[index], pod)
			}
		}
	}
	return found
}

// jobOf is as much of a pod's job as tells the number of a worker.
func jobOf(pod *corev1.Pod) *job.Job {
	made := &job.Job{Kind: job.KindTrainJob, Name: pod.Labels[training.LabelJobName]}
	if pod.Labels[training.LabelJobType] == training.JobTypeMPIJob {
		made.Kind = job.KindMPIJob
	}
	made.Worker.Replicas = math.MaxInt32
	return made
}

func newest(one, other *corev1.Pod) *corev1.Pod {
	if one == nil || one.CreationTimestamp.Before(&other.CreationTimestamp) {
		return other
	}
	return one
}

// all are the pods in the order of a report.
func (places places) all() []*corev1.Pod {
	var pods []*corev1.Pod
	if places.launcher != nil {
		pods = append(pods, places.launcher)
	}
	for _, index := range places.indices() {
		pods = append(pods, places.workers[index])
	}
	return pods
}

func (places places) indices() []int32 {
	indices := make([]int32, 0, len(places.workers))
	for index := range places.workers {
		indices = append(indices, index)
	}
	slices.Sort(indices)
	return indices
}

// report is what was measured, by the names of pods.
func (places places) report(source string, measured map[string]Pod) *Report {
	report := &Report{Source: source, Workers: []Pod{}}
	if places.launcher != nil {
		launcher := reported(places.launcher.Name, nil, measured)
		report.Launcher = &launcher
	}
	for _, index := range places.indices() {
		report.Workers = append(report.Workers, reported(places.workers[index].Name, &index, measured))
	}
	if len(places.all()) == 0 {
		report.Message = "the job has no pods that could be measured: they are not there yet, or no longer"
	}
	return report
}

// reported is a pod in which nothing is nil, so that readers get lists and no null.
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
