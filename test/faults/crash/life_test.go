// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

// life is that of one job, in a namespace and with operators of its own.
type life struct {
	*player.Player
	*journal
	cluster *cluster
	story   story
	// first is the same life without a crash; nil if this is it.
	first *outcome
	left  outcome

	// hiring is held while an operator is started, and while none may be.
	hiring sync.Mutex
	// wire is that of the operator that was started last.
	wire *wire

	job      client.Object
	launcher *corev1.Pod
	workers  []*corev1.Pod
}

// outcome is what is compared between lives.
type outcome struct {
	writes  []string
	states  map[string]state
	created map[string]int
	history []told
	events  map[string]int
}

// live leads one life from its beginning to its end.
func live(t *testing.T, cluster *cluster, story story, first *outcome, crashes ...moment) *life {
	t.Helper()
	life := &life{
		Player:  &player.Player{TB: t, Client: cluster.client, Namespace: cluster.newNamespace(t)},
		journal: &journal{crashes: crashes}, cluster: cluster, story: story, first: first, left: outcome{states: map[string]state{}},
	}
	if story.kind == trainJob {
		life.Create(player.Runtime("mpi", story.runtime))
	}
	life.job = story.job()
	life.Create(life.job)
	end := life.employ(cluster.connection)
	defer end()
	story.script(life)
	life.left.writes, life.left.created, life.left.history = life.writes, life.journal.created(), life.journal.history()
	life.left.events = life.events()
	return life
}

// employ has an operator at work, and another one as soon as it is stopped.
func (life *life) employ(connection *rest.Config) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			life.operate(ctx, connection, &all)
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}

// operate returns when the operator is stopped, and nothing that it has sent is
// on its way any more.
func (life *life) operate(ctx context.Context, connection *rest.Config, all *sync.WaitGroup) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	wire := &wire{journal: life.journal, stop: stop, begun: make(chan struct{}), ended: make(chan struct{})}
	defer close(wire.ended)
	life.hiring.Lock()
	life.wire = wire
	life.hiring.Unlock()
	connection = rest.CopyConfig(connection)
	connection.QPS, connection.Burst = 500, 1000
	connection.WarningHandlerWithContext = rest.NoWarnings{}
	connection.Wrap(func(server http.RoundTripper) http.RoundTripper {
		wire.server = server
		return wire
	})
	settings := config.Default()
	settings.ClusterDomain = "cluster.local"
	settings.LeaderElection.Enabled = false
	settings.Failures.RestartSeconds = 1
	manager, err := operator.NewForNamespace(connection, operator.Options{Config: settings, ProbeAddress: "0", Audit: io.Discard}, life.Namespace)
	if err != nil {
		life.Errorf("start an operator: %v", err)
		return
	}
	all.Go(func() {
		defer stop()
		if err := manager.Start(running); err != nil && !wire.dead.Load() {
			life.Errorf("the operator ended: %v", err)
		}
	})
	// controller-runtime spins for ever where it is stopped before its caches are filled.
	select {
	case <-manager.Elected():
	case <-running.Done():
	}
	close(wire.begun)
	select {
	case <-ctx.Done():
	case <-running.Done():
	}
	stop()
	wire.underway.Wait()
}

// untilStartIsAnnounced waits for the event of the start, which the operator writes
// after the status. Only the first life is sure to have it, and those in which an
// operator is to be stopped at it.
func (life *life) untilStartIsAnnounced() {
	life.Helper()
	const write = "create events/TrainingStarted"
	if life.first == nil || life.isStoppedAt(write) {
		life.Eventually("the start is announced", func() error {
			if !life.has(write) {
				return errors.New("the operator has not written the event")
			}
			return nil
		})
	}
}

// withoutOperator has something happen while no operator runs.
func (life *life) withoutOperator(happens func()) {
	life.Helper()
	life.hiring.Lock()
	defer life.hiring.Unlock()
	if wire := life.wire; wire != nil {
		select {
		case <-wire.begun:
			_ = wire.die()
		case <-wire.ended:
		}
		<-wire.ended
	}
	happens()
}

// untilJob waits until something holds of the job.
func (life *life) untilJob(what string, holds func(*training.Progress) bool) {
	life.Helper()
	life.Until(what, life.job, func() error {
		if progress := player.ProgressOf(life.job); !holds(progress) {
			return fmt.Errorf("it is %+v", progress)
		}
		return nil
	})
}

func (life *life) untilPhase(phase training.Phase) {
	life.Helper()
	life.untilJob("the job is "+string(phase), func(progress *training.Progress) bool { return progress.Phase == phase })
}

func (life *life) untilStep(step training.TimelineStep) {
	life.Helper()
	life.untilJob("the job has reached "+string(step), func(progress *training.Progress) bool {
		return slices.ContainsFunc(progress.Timeline, func(entry training.TimelineEntry) bool { return entry.Step == step })
	})
}

// runs brings the job from its creation, or from its suspension, to where every
// rank is at work.
func (life *life) runs() {
	life.Helper()
	if life.story.launcherLast {
		life.workers = life.UntilWorkers(life.job, 2)
		life.Assign(life.workers...)
		life.StartContainers(life.workers...)
		life.Ready(life.workers...)
		life.launcher = life.UntilLauncher(life.job)
		life.Assign(life.launcher)
		life.untilStep(training.StepPodsReady)
		life.StartContainers(life.launcher)
	} else {
		life.launcher, life.workers = life.UntilPods(life.job)
		life.Assign(append(slices.Clone(life.workers), life.launcher)...)
		life.untilStep(training.StepScheduled)
		life.StartContainers(life.workers...)
		life.StartContainers(life.launcher)
		life.untilPhase(training.PhaseRunning)
		life.Ready(life.workers...)
		life.untilStep(training.StepPodsReady)
	}
	life.untilPhase(training.PhaseRunning)
	life.Ready(life.launcher)
	life.untilReached()
}

// untilReached waits until the launcher knows that all workers run, and the job
// that the launcher has reached them.
func (life *life) untilReached() {
	life.Helper()
	life.Until("the launcher knows that all workers run", life.launcher, func() error {
		if life.launcher.Annotations[plan.RunningAnnotation] == "" {
			return fmt.Errorf("its annotations are %v", life.launcher.Annotations)
		}
		return nil
	})
	life.untilStep(training.StepWorkersReached)
	life.untilPhase(training.PhaseRunning)
}

// endsWell: the command has ended with 0.
func (life *life) endsWell() {
	life.Helper()
	life.Exit(life.launcher, 0, player.Report("", 2))
	life.untilPhase(training.PhaseSucceeded)
}

const (
	// quiet is how long nothing may happen before a state is taken for the last one.
	quiet = 2 * time.Second
	// again is when a state that was right is looked at once more.
	again = 400 * time.Millisecond
)

// left is what a job of each kind shall consist of at some moment.
type left map[job.Kind][]string

// settles waits until what there is does not change any more: in the first life
// because nothing happens, in others because it is what it was in the first.
func (life *life) settles(when string, want left) {
	life.Helper()
	if life.first == nil {
		life.left.states[when] = life.lastState(when, want[life.story.kind])
		return
	}
	first := life.first.states[when]
	life.Eventually(when+", there is what there was without a crash", func() error {
		life.collectGarbage()
		return differs(first, life.state())
	})
	time.Sleep(again)
	if err := differs(first, life.state()); err != nil {
		life.Errorf("a moment after it was right, %s, %v", when, err)
	}
}

func (life *life) lastState(when string, want []string) (last state) {
	life.Helper()
	life.Eventually(when+", there is what there should be", func() error {
		life.collectGarbage()
		last = life.state()
		if difference := cmp.Diff(want, slices.Sorted(maps.Keys(last))); difference != "" {
			return fmt.Errorf("it is not (-want +got):\n%s", difference)
		}
		return nil
	})
	for since := time.Now(); time.Since(since) < quiet; time.Sleep(100 * time.Millisecond) {
		if now := life.state(); differs(last, now) != nil {
			last, since = now, time.Now()
		}
	}
	return last
}

func differs(want, got state) error {
	if difference := cmp.Diff(want, got); difference != "" {
		return fmt.Errorf("it is not the same (-without +with a crash):\n%s", difference)
	}
	return nil
}

// expires: what is left of a job that has outlived itself goes with it.
func (life *life) expires() {
	life.Helper()
	patch := `{"spec":{"ttlSecondsAfterFinished":0}}`
	if life.story.kind == mpiJob {
		patch = `{"spec":{"runPolicy":{"ttlSecondsAfterFinished":0}}}`
	}
	life.Patch(life.job, patch)
	life.Eventually("the job is gone", func() error {
		if err := life.Get(life.job, life.job.GetName()); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
	life.Eventually("everything is gone", func() error {
		life.collectGarbage()
		if left := life.state(); len(left) > 0 {
			return fmt.Errorf("there is %v", left)
		}
		return nil
	})
}

// suspend has a job that runs stopped, or one that is stopped started anew.
func (life *life) suspend(yes bool) {
	life.Helper()
	patch := `{"spec":{"suspend":%t}}`
	if life.story.kind == mpiJob {
		patch = `{"spec":{"runPolicy":{"suspend":%t}}}`
	}
	life.Patch(life.job, fmt.Sprintf(patch, yes))
}

// outOfMemory ends a worker as the kernel does.
func (life *life) outOfMemory(pod *corev1.Pod) {
	life.Helper()
	life.SetStatus(pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodFailed
		status.ContainerStatuses[0].Ready = false
		status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "OOMKilled", StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
		}}
	})
}

// commandFails: the launcher's command has failed, and the job says so.
func (life *life) commandFails() {
	life.Helper()
	life.Exit(life.launcher, 3, player.Report(string(training.FailureTraining), 2))
	attempt, err := strconv.Atoi(life.launcher.Labels[training.LabelRestart])
	if err != nil {
		life.Fatal(err)
	}
	life.untilJob("the job reports that the command has failed", func(progress *training.Progress) bool {
		// On a busy machine the job is restarted before the test looks, and its status shows
		// the next launcher.
		if restart := progress.Restart; restart != nil && int(restart.Count) > attempt && restart.Reason == training.FailureTraining {
			return true
		}
		status := progress.LauncherPodStatus
		return status != nil && status.Name == life.launcher.Name && status.Reason == string(training.FailureTraining)
	})
}

// untilLauncher waits until the job says something of its launcher's pod.
func (life *life) untilLauncher(what string, holds func(*training.PodStatus) bool) {
	life.Helper()
	life.untilJob(what, func(progress *training.Progress) bool {
		status := progress.LauncherPodStatus
		return status != nil && status.Name == life.launcher.Name && holds(status)
	})
}

// restarts: another launcher of an MPIJob runs, and all pods of a TrainJob do, once
// the kubelets have removed those of the first start.
func (life *life) restarts() {
	life.Helper()
	life.Eventually("the pods of the restart exist", func() error {
		life.collectGarbage()
		if pods := life.PodsOf(life.job, training.RoleLauncher); !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Labels[training.LabelRestart] == "1" }) {
			return fmt.Errorf("there are %d launchers, and none of the restart; the job is %+v", len(pods), player.ProgressOf(life.job))
		}
		return nil
	})
	var created []*corev1.Pod
	if life.story.kind == mpiJob {
		life.launcher = life.UntilLauncher(life.job)
	} else {
		life.launcher, life.workers = life.UntilPods(life.job)
		created = life.workers
	}
	created = append(slices.Clone(created), life.launcher)
	life.Assign(created...)
	life.untilLauncher("the launcher is scheduled", func(status *training.PodStatus) bool { return status.Node != "" })
	life.StartContainers(created...)
	life.untilLauncher("the launcher runs again", func(status *training.PodStatus) bool { return status.Phase == string(corev1.PodRunning) })
	life.Ready(created...)
	life.untilReached()
}

// hasFailed: the job has, for the reason that it should.
func (life *life) hasFailed(want training.FailureReason, what left) {
	life.Helper()
	life.untilPhase(training.PhaseFailed)
	life.settles("when it has failed", what)
	if reason := player.ProgressOf(life.job).FailureReason; reason != want {
		life.Errorf("it has failed with %s, want %s", reason, want)
	}
}
