package e2e

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

const (
	measuredJobs = 100
	atATime      = 25
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
		make: func(name string) client.Object { return simulatedMPIJob(name, 2, briefly, small) }},
	{name: "TrainJob/launcher-exits", phase: training.PhaseSucceeded,
		make: func(name string) client.Object { return simulatedTrainJob(name, 2, briefly, small) }},
	{name: "MPIJob/worker-fails", breaks: true, phase: training.PhaseFailed,
		make: func(name string) client.Object { return simulatedMPIJob(name, 2, forever, small) }},
	{name: "TrainJob/worker-fails", breaks: true, phase: training.PhaseFailed,
		make: func(name string) client.Object { return simulatedTrainJob(name, 2, forever, small) }},
}

// BenchmarkFinalStatus measures how long a job's final status comes after the
// status of the pod that decides: the launcher's exit, or a worker's failure.
// Both times are when one watcher saw them.
func BenchmarkFinalStatus(b *testing.B) {
	simulateNodes(b, 10)
	for _, measured := range measurements {
		b.Run(measured.name, func(b *testing.B) {
			crowd := newCrowd(b, briefly, forever)
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
		stream, err := crowd.client.Watch(ctx, list, client.InNamespace(crowd.namespace))
		if err != nil {
			crowd.t.Fatal(err)
		}
		go func() {
			for event := range stream.ResultChan() {
				if object, isObject := event.Object.(client.Object); isObject {
					watcher.note(object, time.Now())
				} else if ctx.Err() == nil {
					crowd.t.Errorf("watch %T: %v", list, event.Object)
				}
			}
		}()
	}
	return watcher
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

// endAll lets jobs come to their end, several at a time, and tells how long it
// took each to say so.
func (watcher *watcher) endAll(measured measured) []time.Duration {
	kind := strings.ToLower(strings.Split(measured.name, "/")[0])
	took := make([]time.Duration, measuredJobs)
	next := make(chan int)
	var workers sync.WaitGroup
	for range atATime {
		workers.Go(func() {
			for i := range next {
				took[i] = watcher.endOne(measured, fmt.Sprintf("%s-%d", kind, i))
			}
		})
	}
	for i := range measuredJobs {
		next <- i
	}
	close(next)
	workers.Wait()
	return took
}

func (watcher *watcher) endOne(measured measured, name string) time.Duration {
	job := measured.make(name)
	job.SetNamespace(watcher.namespace)
	if err := watcher.client.Create(context.Background(), job); err != nil {
		watcher.t.Errorf("create %s: %v", name, err)
		return 0
	}
	seen := watcher.of(name)
	if measured.breaks {
		if !watcher.await(seen.running, name, "runs") {
			return 0
		}
		watcher.breakWorker(name)
	}
	if !watcher.await(seen.over, name, "ends") {
		return 0
	}
	if seen.progress.Phase != measured.phase {
		watcher.t.Errorf("%s is %s, want %s: %s", name, seen.progress.Phase, measured.phase, seen.progress.FailureMessage)
	}
	return max(0, seen.end.Sub(seen.cause))
}

func (watcher *watcher) await(happens <-chan struct{}, name, what string) bool {
	select {
	case <-happens:
		return true
	case <-time.After(2 * time.Minute):
		watcher.t.Errorf("%s: nobody has seen that it %s", name, what)
		return false
	}
}

// breakWorker makes a worker say that the kernel has ended it for want of memory.
func (watcher *watcher) breakWorker(name string) {
	var pods corev1.PodList
	if err := watcher.client.List(context.Background(), &pods, client.InNamespace(watcher.namespace),
		client.MatchingLabels{training.LabelJobName: name, training.LabelReplicaType: training.RoleWorker}); err != nil || len(pods.Items) == 0 {
		watcher.t.Errorf("the workers of %s: %d of them, %v", name, len(pods.Items), err)
		return
	}
	pod := &pods.Items[0]
	patch := fmt.Sprintf(`{"status":{"phase":"Failed","containerStatuses":[{"name":%q,"image":%q,"imageID":"","ready":false,"restartCount":0,
		"state":{"terminated":{"exitCode":137,"reason":"OOMKilled","finishedAt":%q}}}]}}`,
		pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image, time.Now().UTC().Format(time.RFC3339))
	if err := watcher.client.Status().Patch(context.Background(), pod, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		watcher.t.Errorf("break pod %s: %v", pod.Name, err)
	}
}
