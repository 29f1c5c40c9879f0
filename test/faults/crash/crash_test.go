// SPDX-License-Identifier: Apache-2.0

// Package crash stops the operator at every write of a job's life, before it and
// after it, and has another one take over. The API server is a real one; the
// tests play the rest of the cluster.
package crash

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/player"
	"github.com/trireme-mpi/trireme/internal/testing/shared"
)

const (
	mpiJob   = job.KindMPIJob
	trainJob = job.KindTrainJob
	// crashesInALife is how many operators are stopped in each. With 1 a life that
	// goes wrong has one cause, and the test takes four times as long.
	crashesInALife = 4
	// attempts are made to reach a write that does not come in every life.
	attempts = 3
	// livesAtATime: lives are mostly spent waiting.
	livesAtATime = "16"
	// garbage is how much of it there may be, in hundredths of what is in use.
	garbage = 400
)

// cluster is an API server with the CRDs of jobs, JobSets and groups.
type cluster struct {
	connection *rest.Config
	client     client.WithWatch
	// cache shows what is in all namespaces: hundreds of lives would ask all the time.
	cache cache.Cache
}

var sharedCluster = shared.Thing[*cluster]{Make: func(t testing.TB) *cluster {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	environment := controlplane.Start(t, &envtest.Environment{
		CRDDirectoryPaths: []string{
			deployed.CRDs(), deployed.JobSetCRDs(t),
			filepath.Join(deployed.Repository(), "test/integration/operator/testdata"),
		},
		ErrorIfCRDPathMissing: true,
	})
	return &cluster{connection: environment.Config, client: player.Connect(t, environment.Config), cache: newCache(t, environment.Config)}
}}

func newCache(t testing.TB, connection *rest.Config) cache.Cache {
	t.Helper()
	made, err := cache.New(connection, cache.Options{DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go func() {
		if err := made.Start(ctx); err != nil {
			t.Errorf("watch the API server: %v", err)
		}
	}()
	return made
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Half of the time would go into garbage, here and in the API server.
	debug.SetGCPercent(garbage)
	if err := os.Setenv("GOGC", fmt.Sprint(garbage)); err != nil {
		panic(err)
	}
	if err := flag.Set("test.parallel", livesAtATime); err != nil {
		panic(err)
	}
	os.Exit(sharedCluster.End(m.Run()))
}

func (cluster *cluster) newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "crash-"}}
	if err := cluster.client.Create(context.Background(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

// story is what happens to a job.
type story struct {
	name string
	kind job.Kind
	// gang: its pods are placed together, by coscheduling.
	gang bool
	// launcherLast: the launcher is made when the workers are ready.
	launcherLast bool
	// restarts is how often it may be restarted.
	restarts int32
	clean    training.CleanPodPolicy
	script   func(*life)
}

// plainScheduler is one that is not known to place pods together.
const plainScheduler = "plain-scheduler"

func (story *story) job() client.Object {
	if story.kind == trainJob {
		return player.TrainJob("", "train", func(job *v2alpha1.TrainJob) {
			job.Spec.CleanPodPolicy, job.Spec.BackoffLimit = &story.clean, &story.restarts
		})
	}
	return player.MPIJob("train", func(job *v2beta1.MPIJob) {
		job.Spec.RunPolicy.CleanPodPolicy, job.Spec.RunPolicy.BackoffLimit = &story.clean, &story.restarts
		if story.launcherLast {
			job.Spec.LauncherCreationPolicy = v2beta1.LauncherCreationPolicyWaitForWorkersReady
		}
		for _, role := range job.Spec.MPIReplicaSpecs {
			story.place(&role.Template)
		}
	})
}

func (story *story) runtime(spec *v2alpha1.TrainingRuntimeSpec) {
	for i := range spec.Template.Spec.ReplicatedJobs {
		story.place(&spec.Template.Spec.ReplicatedJobs[i].Template)
	}
}

func (story *story) place(template *corev1.PodTemplateSpec) {
	if !story.gang {
		template.Spec.SchedulerName = plainScheduler
	}
}

// stories are those of both kinds, with and without a gang. In make test only TrainJobs
// have one: the writes of a gang are the same for both kinds.
func stories() (all []story) {
	for _, kind := range []job.Kind{mpiJob, trainJob} {
		for _, gang := range []bool{false, true} {
			if gang != (kind == trainJob) && os.Getenv("THOROUGH") == "" {
				continue
			}
			for _, one := range []story{
				{name: "succeeds", clean: training.CleanPodPolicyRunning, script: succeeds},
				{name: "fails", clean: training.CleanPodPolicyRunning, script: fails},
				{name: "is restarted and fails again", clean: training.CleanPodPolicyRunning, restarts: 1, script: isRestarted},
				{name: "is suspended and resumed", clean: training.CleanPodPolicyAll, script: isSuspended},
				{name: "finishes while no operator runs", clean: training.CleanPodPolicyRunning, script: finishesUnseen},
			} {
				one.kind, one.gang = kind, gang
				one.launcherLast = kind == mpiJob && !gang
				one.name = string(kind) + " " + map[bool]string{false: "alone", true: "in a gang"}[gang] + " " + one.name
				all = append(all, one)
			}
		}
	}
	return all
}

// succeeds: a job from its creation to where nothing is left of it.
func succeeds(life *life) {
	life.runs()
	life.endsWell()
	life.settles("when it has succeeded", left{
		mpiJob:   {"ConfigMap/train-hostfile", "Job/train-launcher", "MPIJob/train", "Pod/train-launcher-r0", "Service/train-worker"},
		trainJob: {"ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "JobSet/train", "Pod/train-launcher-0-0-r0", "Service/train-worker", "TrainJob/train"},
	})
	life.expires()
}

// fails: one of its workers runs out of memory.
func fails(life *life) {
	life.runs()
	life.outOfMemory(life.workers[1])
	life.hasFailed(training.FailureWorker, left{
		mpiJob:   {"ConfigMap/train-hostfile", "Job/train-launcher", "MPIJob/train", "Pod/train-worker-1", "Service/train-worker"},
		trainJob: {"ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "JobSet/train", "Pod/train-worker-0-1-r0", "Service/train-worker", "TrainJob/train"},
	})
}

// isRestarted: its command fails, and once more after the restart.
func isRestarted(life *life) {
	life.runs()
	life.commandFails()
	life.untilJob("the restart is announced", func(progress *training.Progress) bool {
		return progress.Restart != nil && progress.Restart.Count == 1 && progress.Restart.Reason == training.FailureTraining
	})
	life.restarts()
	life.commandFails()
	life.hasFailed(training.FailureTraining, left{
		mpiJob: {"ConfigMap/train-hostfile", "Job/train-launcher", "MPIJob/train", "Pod/train-launcher-r0", "Pod/train-launcher-r1", "Service/train-worker"},
		trainJob: {"ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "JobSet/train", "Pod/train-launcher-0-0-r1", "Service/train-worker",
			"TrainJob/train"},
	})
}

// isSuspended: it runs twice, and of the first time nothing is left.
func isSuspended(life *life) {
	life.runs()
	life.suspend(true)
	life.settles("when it is suspended", left{
		mpiJob:   {"ConfigMap/train-hostfile", "MPIJob/train", "Secret/train-ssh-key", "Service/train-worker"},
		trainJob: {"ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "Secret/train-ssh", "Service/train-worker", "TrainJob/train"},
	})
	life.suspend(false)
	life.runs()
	life.endsWell()
	life.settles("when it has succeeded", left{
		mpiJob:   {"ConfigMap/train-hostfile", "MPIJob/train", "Service/train-worker"},
		trainJob: {"ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "Service/train-worker", "TrainJob/train"},
	})
}

// finishesUnseen: its launcher completes, and the launcher's pod is deleted, while no
// operator runs. The job has succeeded all the same.
func finishesUnseen(life *life) {
	life.runs()
	life.untilStartIsAnnounced()
	life.withoutOperator(func() {
		life.Exit(life.launcher, 0, player.Report("", 2))
		life.Remove(life.launcher)
	})
	life.untilPhase(training.PhaseSucceeded)
	life.settles("when it has succeeded", left{
		mpiJob:   {"ConfigMap/train-hostfile", "Job/train-launcher", "MPIJob/train", "Service/train-worker"},
		trainJob: {"ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "JobSet/train", "Service/train-worker", "TrainJob/train"},
	})
}

// TestCrashAtEveryWrite leads each life once without a crash. Then there is one
// before and one after each write that the operator has made in it: a few in one
// life, as far apart as can be.
func TestCrashAtEveryWrite(t *testing.T) {
	cluster := sharedCluster.For(t)
	for _, story := range stories() {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			first := live(t, cluster, story, nil).left
			var moments []moment
			for _, write := range first.writes {
				moments = append(moments, moment{write: write}, moment{write: write, after: true})
			}
			lives := (len(moments) + crashesInALife - 1) / crashesInALife
			t.Logf("%d crashes in %d lives, at %d writes:\n%s", len(moments), lives, len(first.writes), strings.Join(first.writes, "\n"))
			for begin := range lives {
				t.Run(fmt.Sprintf("life %d of %d", begin+1, lives), func(t *testing.T) {
					t.Parallel()
					var crashes []moment
					for i := begin; i < len(moments); i += lives {
						crashes = append(crashes, moments[i])
					}
					liveWithCrashes(t, cluster, story, &first, crashes)
				})
			}
		})
	}
}

// liveWithCrashes: what comes of a life is what came of it without them.
func liveWithCrashes(t *testing.T, cluster *cluster, story story, first *outcome, crashes []moment) {
	for range attempts {
		for _, crash := range crashes {
			t.Logf("the operator is stopped %s", crash)
		}
		life := live(t, cluster, story, first, crashes...)
		if difference := cmp.Diff(first.created, life.left.created); difference != "" {
			t.Errorf("how often things were created (-without +with a crash):\n%s", difference)
		}
		if difference := cmp.Diff(first.history, life.left.history, cmp.AllowUnexported(told{})); difference != "" {
			t.Errorf("what the job was told to be (-without +with a crash):\n%s", difference)
		}
		// Events of one that is stopped may be lost; none is told twice.
		if err := wantEvents(life.left.events, first.events); err != nil {
			t.Error(err)
		}
		if crashes = slices.DeleteFunc(life.crashes, isLeftOut); len(crashes) == 0 || t.Failed() {
			return
		}
	}
	t.Errorf("in %d lives the operator has never come to: %s", attempts, crashes)
}

// isLeftOut tells of a write that is made only where pods take more than a second to
// come: a busy machine makes it in the first life, and not in the next.
func isLeftOut(moment moment) bool { return strings.HasSuffix(moment.write, "Pending, Admitted") }
