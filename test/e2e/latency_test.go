// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

const (
	measuredJobs = 100
	atATime      = 25
	// steadily is a launcher that runs until the start of its wave is over.
	steadily = 10 * time.Second
)

// measured is a way for jobs to end.
type measured struct {
	name string
	make func(name string) client.Object
	// breaks tells whether a worker of the job runs out of memory.
	breaks bool
	phase  training.Phase
}

var measurements = []measured{
	{name: "MPIJob/launcher-exits", phase: training.PhaseSucceeded,
		make: func(name string) client.Object { return simulatedMPIJob(name, 2, steadily, small()) }},
	{name: "TrainJob/launcher-exits", phase: training.PhaseSucceeded,
		make: func(name string) client.Object { return simulatedTrainJob(name, 2, steadily, small()) }},
	{name: "MPIJob/worker-fails", breaks: true, phase: training.PhaseFailed,
		make: func(name string) client.Object { return simulatedMPIJob(name, 2, forever, small()) }},
	{name: "TrainJob/worker-fails", breaks: true, phase: training.PhaseFailed,
		make: func(name string) client.Object { return simulatedTrainJob(name, 2, forever, small()) }},
}

// BenchmarkFinalStatus measures how long a job's final status comes after the
// status of the pod that decides: the launcher's exit, or a worker's failure.
// Both times are when one watcher saw them.
func BenchmarkFinalStatus(b *testing.B) {
	simulateNodes(b, 10)
	for _, measured := range measurements {
		b.Run(measured.name, func(b *testing.B) {
			crowd := newCrowd(b, steadily, forever)
			watcher := watch(crowd)
			var took []time.Duration
			for b.Loop() {
				took = append(took, watcher.endAll(measured)...)
			}
			report(b, took)
		})
	}
}

// report gives the percentiles that matter.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	for _, percent := range []float64{50, 95, 99} {
		value := took[int(math.Ceil(percent/100*float64(len(took))))-1]
		b.ReportMetric(float64(value.Microseconds())/1000, fmt.Sprintf("p%.0f-ms", percent))
	}
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
	b.ReportMetric(0, "ns/op")
}

// watcher notes when it sees what of jobs and their pods.
type watcher struct {
	*crowd
	mutex sync.Mutex
	jobs  map[string]*sightings
}

// sightings are what was seen of one job.
type sightings struct {
	cause, end time.Time
	progress   training.Progress
	// running and over are closed when the job runs and when both times are known.
	running, over chan struct{}
}

func watch(crowd *crowd) *watcher {
	crowd.t.Helper()
	watcher := &watcher{crowd: crowd, jobs: map[string]*sightings{}}
	ctx, stop := context.WithCancel(context.Background())
	crowd.t.Cleanup(stop)
	for _, list := range []client.ObjectList{&corev1.PodList{}, &v2beta1.MPIJobList{}, &v2alpha1.TrainJobList{}} {
		go watcher.follow(ctx, list)
	}
	return watcher
}

// follow notes all that happens to objects of a kind. The API server may end a
// watch at any time; the next one goes on where it ended.
func (watcher *watcher) follow(ctx context.Context, list client.ObjectList) {
	from := ""
	for ctx.Err() == nil {
		stream, err := watcher.client.Watch(ctx, list, client.InNamespace(watcher.namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from}})
		if err != nil {
			watcher.t.Logf("watch %T: %v", list, err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for event := range stream.ResultChan() {
			object, isObject := event.Object.(client.Object)
			if !isObject {
				break
			}
			watcher.note(object, time.Now())
			from = object.GetResourceVersion()
		}
		stream.Stop()
	}
}

func (watcher *watcher) of(name string) *sightings {
	watcher.mutex.Lock()
	defer watcher.mutex.Unlock()
	if watcher.jobs[name] == nil {
		watcher.jobs[name] = &sightings{running: make(chan struct{}), over: make(chan struct{})}
	}
	return watcher.jobs[name]
}

func (watcher *watcher) note(object client.Object, now time.Time) {
	pod, isPod := object.(*corev1.Pod)
	name := object.GetName()
	if isPod {
		if !decides(pod) {
			return
		}
		name = pod.Labels[training.LabelJobName]
	}
	seen := watcher.of(name)
	watcher.mutex.Lock()
	defer watcher.mutex.Unlock()
	select {
	case <-seen.over:
		return
	default:
	}
	if isPod && seen.cause.IsZero() {
		seen.cause = now
	}
	if !isPod {
		seen.noteJob(progressOf(object), now)
	}
	if !seen.cause.IsZero() && !seen.end.IsZero() {
		close(seen.over)
	}
}

func (seen *sightings) noteJob(progress training.Progress, now time.Time) {
	ran := seen.progress.Phase == training.PhaseRunning
	seen.progress = progress
	if progress.Phase == training.PhaseRunning && !ran {
		close(seen.running)
	}
	if isFinished(progress) && seen.end.IsZero() {
		seen.end = now
	}
}

// decides tells whether a pod's status ends its job: the launcher has exited, or
// a worker has failed.
func decides(pod *corev1.Pod) bool {
	if pod.Labels[training.LabelReplicaType] == training.RoleLauncher {
		return terminated(pod) != nil
	}
	return pod.Status.Phase == corev1.PodFailed
}

// endAll lets jobs come to their end, a wave of them at a time, and tells how long
// it took each to say so. Within a wave all of them run before the first one ends.
func (watcher *watcher) endAll(measured measured) (took []time.Duration) {
	for wave := range measuredJobs / atATime {
		jobs := make([]client.Object, atATime)
		for i := range jobs {
			jobs[i] = measured.make(fmt.Sprintf("wave-%d-%d", wave, i))
		}
		watcher.submitAll(jobs)
		watcher.inParallel(jobs, func(job client.Object) error { return await(watcher.of(job.GetName()).running, "it runs") })
		if measured.breaks {
			watcher.inParallel(jobs, watcher.breakWorker)
		}
		for _, job := range jobs {
			seen := watcher.of(job.GetName())
			if err := await(seen.over, "it ends"); err != nil || seen.progress.Phase != measured.phase {
				watcher.t.Fatalf("%s is %s, want %s: %v %s", job.GetName(), seen.progress.Phase, measured.phase, err, seen.progress.FailureMessage)
			}
			took = append(took, max(0, seen.end.Sub(seen.cause)))
		}
	}
	return took
}

func await(happens <-chan struct{}, what string) error {
	select {
	case <-happens:
		return nil
	case <-time.After(2 * time.Minute):
		return fmt.Errorf("nobody has seen that %s", what)
	}
}

// breakWorker makes a worker say that the kernel has ended it for want of memory.
func (watcher *watcher) breakWorker(job client.Object) error {
	var pods corev1.PodList
	if err := watcher.client.List(context.Background(), &pods, client.InNamespace(watcher.namespace),
		client.MatchingLabels{training.LabelJobName: job.GetName(), training.LabelReplicaType: training.RoleWorker}); err != nil || len(pods.Items) == 0 {
		return fmt.Errorf("it has %d workers: %w", len(pods.Items), err)
	}
	pod := &pods.Items[0]
	patch := fmt.Sprintf(`{"status":{"phase":"Failed","containerStatuses":[{"name":%q,"image":%q,"imageID":"","ready":false,"restartCount":0,
		"state":{"terminated":{"exitCode":137,"reason":"OOMKilled","finishedAt":%q}}}]}}`,
		pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image, time.Now().UTC().Format(time.RFC3339))
	return watcher.client.Status().Patch(context.Background(), pod, client.RawPatch(types.MergePatchType, []byte(patch)))
}
