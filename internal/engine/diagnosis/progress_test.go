// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

func TestPhases(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(*scene)
		phase  training.Phase
		ready  string
	}{
		"no pods":                         {func(scene *scene) { scene.observed.Launchers, scene.observed.Workers = nil, nil }, training.PhasePending, "0/2"},
		"unscheduled pods":                {func(scene *scene) { scene.addPods(nothing) }, training.PhasePending, "0/2"},
		"pods whose images are pulled":    {func(scene *scene) { scene.addPods(pullsImage) }, training.PhasePending, "0/2"},
		"all run and none is ready":       {func(scene *scene) { scene.addPods(starts) }, training.PhaseRunning, "0/2"},
		"all run and one worker is ready": {func(scene *scene) { scene.addPods(starts); scene.worker(1, runs) }, training.PhaseRunning, "1/2"},
		"all run and are ready":           {func(*scene) {}, training.PhaseRunning, "2/2"},
		"the launcher does not run":       {onLauncher(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }), training.PhasePending, "2/2"},
		"the launcher has no pod":         {func(scene *scene) { scene.observed.Launchers = nil }, training.PhasePending, "2/2"},
		"a worker does not run":           {onWorker(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodUnknown }), training.PhasePending, "2/2"},
		"a worker has succeeded":          {onWorker(exits(0, "Completed", "", 50)), training.PhaseRunning, "1/2"},
		"the launcher has succeeded":      {onLauncher(exits(0, "Completed", "", 50)), training.PhaseSucceeded, "2/2"},
		"a pod that is no worker's":       {func(scene *scene) { scene.worker(1, withHost("other-worker-0-7")) }, training.PhasePending, "1/2"},
		"a pod without a number":          {func(scene *scene) { scene.worker(1, withHost(hostOf(scene, "x"))) }, training.PhasePending, "1/2"},
		"a pod with a huge number":        {func(scene *scene) { scene.worker(1, withHost(hostOf(scene, "99999999999"))) }, training.PhasePending, "1/2"},
		"a pod with a negative number":    {func(scene *scene) { scene.worker(1, withHost(hostOf(scene, "-1"))) }, training.PhasePending, "1/2"},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := newScene(t, kind, 2)
				scene.addPods(runs)
				tc.happen(scene)
				verdict := scene.verdict()
				if verdict.Phase != tc.phase || verdict.ReadyWorkers != tc.ready {
					t.Errorf("%s with %s workers, want %s with %s: %s", verdict.Phase, verdict.ReadyWorkers, tc.phase, tc.ready, verdict.FailureMessage)
				}
			})
		}
	}
}

// hostOf is the host name of a worker with this text as its index.
func hostOf(scene *scene, number string) string {
	return scene.job.Name + scene.job.Kind.Traits().WorkerHostInfix + number
}

// A job without workers runs on its launcher alone.
func TestNoWorkers(t *testing.T) {
	for _, kind := range kinds {
		scene := newScene(t, kind, 0)
		scene.addPods(runs)
		verdict := scene.storeVerdict()
		if verdict.Phase != training.PhaseRunning || verdict.ReadyWorkers != "0/0" || !verdict.Gang.Yes || !verdict.WorkersReady.Yes || !verdict.LauncherReady.Yes {
			t.Errorf("%s: %+v", kind, verdict)
		}
		scene.launcher(exits(0, "Completed", "", 50))
		if verdict = scene.storeVerdict(); verdict.Phase != training.PhaseSucceeded {
			t.Errorf("%s: %s", kind, verdict.Phase)
		}
	}
}

func TestPodStatuses(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			scene := newScene(t, kind, 4)
			scene.addPods(runs)
			scene.worker(1, waits("ImagePullBackOff", pullFailure), func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending })
			scene.observed.Workers[2] = scene.newPod(training.RoleWorker, 2, unschedulable(noGPUs))
			scene.observed.Workers = scene.observed.Workers[:3]
			// The cache has no order.
			scene.observed.Workers[0], scene.observed.Workers[2] = scene.observed.Workers[2], scene.observed.Workers[0]
			verdict := scene.verdict()
			want := []training.WorkerPodStatus{
				{Index: 0, PodStatus: training.PodStatus{Name: scene.expand("{worker 0}"), Node: "node-0", Phase: "Running"}},
				{Index: 1, PodStatus: training.PodStatus{Name: scene.expand("{worker 1}"), Node: "node-1", Phase: "Pending", Reason: "ImagePullBackOff", Message: scene.expand(
					secondWorker + " cannot pull its image registry.example.com/train:1: " + pullFailure +
						". Check the image's name and tag, that the node reaches the registry, and imagePullSecrets.")}},
				{Index: 2, PodStatus: training.PodStatus{Name: scene.expand("{worker 2}"), Phase: "Pending", Reason: "Unschedulable", Message: noGPUs}},
			}
			if diff := cmp.Diff(want, verdict.WorkerPodStatuses); diff != "" {
				t.Errorf("workers (-want +got):\n%s", diff)
			}
			wantLauncher := &training.PodStatus{Name: scene.expand("{launcher}"), Node: "node-launcher", Phase: "Running"}
			if diff := cmp.Diff(wantLauncher, verdict.LauncherPodStatus); diff != "" {
				t.Errorf("launcher (-want +got):\n%s", diff)
			}
		})
	}
}

// The launcher's phase in the status is final before that of its pod.
func TestFinalLauncherPhase(t *testing.T) {
	for _, kind := range kinds {
		for code, want := range map[int32]corev1.PodPhase{0: corev1.PodSucceeded, 1: corev1.PodFailed} {
			scene := runningScene(t, kind)
			scene.launcher(exitsFirst(code, "", "", 50))
			if verdict := scene.verdict(); verdict.LauncherPodStatus.Phase != string(want) {
				t.Errorf("%s: after exit code %d the launcher is %s", kind, code, verdict.LauncherPodStatus.Phase)
			}
			if scene.launcher().Status.Phase != corev1.PodRunning {
				t.Error("the pod itself was changed")
			}
		}
	}
}

// The condition GangScheduling while pods wait to be scheduled.
func TestGangCondition(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(*scene)
		want   Condition
	}{
		"no pods yet": {
			func(scene *scene) { scene.observed.Launchers, scene.observed.Workers = nil, nil },
			Condition{Reason: "CreatingPods", Message: "0 of 5 pods exist, 0 are scheduled"},
		},
		"some pods": {
			func(scene *scene) { scene.observed.Workers = scene.observed.Workers[:2] },
			Condition{Reason: "CreatingPods", Message: "3 of 5 pods exist, 0 are scheduled"},
		},
		"pods without conditions": {
			func(*scene) {}, Condition{Reason: "Waiting", Message: "0 of 5 pods are scheduled"},
		},
		"unscheduled pods with a message of the scheduler": {
			func(scene *scene) {
				scene.everyPod(unschedulable(noGPUs))
				scene.worker(0, onNode(scheduled))
				scene.launcher(onNode(scheduled))
			},
			Condition{Reason: "Waiting", Message: "2 of 5 pods are scheduled; scheduler: 0/8 nodes are available, 8 Insufficient nvidia.com/gpu"},
		},
		"all": {
			func(scene *scene) { scene.everyPod(onNode(scheduled)) },
			Condition{Yes: true, Reason: "Scheduled", Message: "All 5 pods are scheduled. The scheduler schedules them one by one."},
		},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				scene := newScene(t, kind, 4)
				scene.addPods(nothing)
				tc.happen(scene)
				verdict := scene.storeVerdict()
				if verdict.Gang != tc.want {
					t.Errorf("%+v, want %+v", verdict.Gang, tc.want)
				}
				if !tc.want.Yes && verdict.Waiting != tc.want {
					t.Errorf("it waits for %+v, want %+v", verdict.Waiting, tc.want)
				}
				if started := verdict.StartTime != nil; started != tc.want.Yes {
					t.Errorf("it has started: %v", started)
				}
			})
		}
	}
}

// The message of the pod that does not fit is more useful than those of the other members
// of its gang, whatever their order.
func TestUnscheduled(t *testing.T) {
	const (
		rejected    = "rejected due to timeout or optimistic rejection in PostFilter"
		unsatisfied = "minCount (3) cannot be satisfied: 2 pods are unschedulable"
		waiting     = "minCount (3) is not yet satisfied"
		noCPU       = "0/1 nodes are available: 1 Insufficient cpu."
		otherNeed   = "minCount (3) of a label was not found on a node"
	)
	for name, tc := range map[string]struct {
		// messages of the scheduler about the pods; empty if it has not tried yet.
		messages []string
		wantPod  string
		want     string
	}{
		"no pods":                             {},
		"no message":                          {messages: []string{"", ""}, wantPod: "pod-0"},
		"only the second has a message":       {messages: []string{"", noCPU}, wantPod: "pod-1", want: noCPU},
		"the first of two useful messages":    {messages: []string{noCPU, noGPUs}, wantPod: "pod-0", want: noCPU},
		"scheduler-plugins, resources last":   {messages: []string{rejected, rejected, noCPU}, wantPod: "pod-2", want: noCPU},
		"scheduler-plugins, resources first":  {messages: []string{noCPU, rejected, rejected}, wantPod: "pod-0", want: noCPU},
		"Kubernetes 1.37, resources last":     {messages: []string{unsatisfied, unsatisfied, noCPU}, wantPod: "pod-2", want: noCPU},
		"Kubernetes 1.37, resources first":    {messages: []string{noCPU, unsatisfied, unsatisfied}, wantPod: "pod-0", want: noCPU},
		"Kubernetes 1.37, resources between":  {messages: []string{waiting, noCPU, unsatisfied}, wantPod: "pod-1", want: noCPU},
		"Kubernetes 1.37, no pod is named":    {messages: []string{unsatisfied, waiting}, wantPod: "pod-0", want: unsatisfied},
		"another message that names minCount": {messages: []string{unsatisfied, otherNeed}, wantPod: "pod-1", want: otherNeed},
	} {
		t.Run(name, func(t *testing.T) {
			scheduledPod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "scheduled"}, Spec: corev1.PodSpec{NodeName: "a"}}
			onNode(scheduled)(scheduledPod)
			pods := []*corev1.Pod{scheduledPod}
			for i, message := range tc.messages {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)}}
				if message != "" {
					unschedulable(message)(pod)
				}
				pods = append(pods, pod)
			}
			got, message := Unscheduled(pods)
			if tc.wantPod == "" {
				if got != nil {
					t.Errorf("pod %s has no node", got.Name)
				}
				return
			}
			if got == nil || got.Name != tc.wantPod || message != tc.want {
				t.Errorf("%v, %q, want %s, %q", got, message, tc.wantPod, tc.want)
			}
		})
	}
}

func TestReadyConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		happen            func(*scene)
		workers, launcher Condition
	}{
		"all are": {
			func(*scene) {},
			Condition{Yes: true, Reason: "Ready", Message: "All 2 workers are ready"},
			Condition{Yes: true, Reason: "WorkersReached", Message: "The launcher has reached every worker"},
		},
		"none is": {
			func(scene *scene) { scene.addPods(starts) },
			Condition{Reason: "Waiting", Message: "0 of 2 workers are ready. Worker 0 (pod {worker 0} on node node-0) is not ready"},
			Condition{Reason: "ReachingWorkers", Message: theLauncher + " is running and waits until it can reach every worker"},
		},
		"one has no pod": {
			func(scene *scene) {
				scene.observed.Workers = scene.observed.Workers[:1]
				scene.launcher(pullsImage, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending })
			},
			Condition{Reason: "Waiting", Message: "1 of 2 workers are ready. Worker 1 has no pod"},
			Condition{Reason: "Waiting", Message: theLauncher + " is not running yet"},
		},
		"one has a problem": {
			func(scene *scene) {
				scene.worker(1, waits("ErrImagePull", pullFailure))
				scene.observed.Launchers = nil
			},
			Condition{Reason: "ErrImagePull", Message: "1 of 2 workers are ready. " + secondWorker + " cannot pull its image registry.example.com/train:1: " + pullFailure +
				". Check the image's name and tag, that the node reaches the registry, and imagePullSecrets."},
			Condition{Reason: "Waiting", Message: "The launcher has no pod yet"},
		},
		"one is not ready": {
			func(scene *scene) {
				scene.worker(1, starts)
				scene.launcher(waits("CreateContainerConfigError", `secret "a" not found`))
			},
			Condition{Reason: "Waiting", Message: "1 of 2 workers are ready. " + secondWorker + " is not ready"},
			Condition{Reason: "CreateContainerConfigError", Message: theLauncher + ` cannot be started: secret "a" not found. Create the Secret or ConfigMap that it names, or correct the pod template.`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			scene := newScene(t, job.KindTrainJob, 2)
			scene.addPods(runs)
			tc.happen(scene)
			verdict := scene.verdict()
			tc.workers.Message, tc.launcher.Message = scene.expand(tc.workers.Message), scene.expand(tc.launcher.Message)
			if verdict.WorkersReady != tc.workers {
				t.Errorf("workers: %+v\nwant %+v", verdict.WorkersReady, tc.workers)
			}
			if verdict.LauncherReady != tc.launcher {
				t.Errorf("launcher: %+v\nwant %+v", verdict.LauncherReady, tc.launcher)
			}
			if verdict.Stage != plan.Active {
				t.Errorf("stage %s", verdict.Stage)
			}
		})
	}
}

// A pod that is being deleted is active until it is removed: then Kueue reuses its
// quota.
func TestCounts(t *testing.T) {
	for _, kind := range kinds {
		scene := newScene(t, kind, 6)
		scene.addPods(nothing)
		scene.worker(1, runs)
		scene.worker(2, runs, deleted(50))
		scene.worker(3, exits(0, "Completed", "", 50), deleted(50))
		scene.worker(4, outOfMemory(50))
		scene.worker(5, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodUnknown })
		verdict := scene.verdict()
		if want := (Counts{Active: 4, Ready: 1, Succeeded: 1, Failed: 1}); verdict.Worker != want {
			t.Errorf("%s: workers %+v, want %+v", kind, verdict.Worker, want)
		}
		if want := (Counts{Active: 1}); verdict.Launcher != want {
			t.Errorf("%s: launcher %+v, want %+v", kind, verdict.Launcher, want)
		}
	}
}
