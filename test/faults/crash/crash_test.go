// Package crash stops the operator at every write of a job's life, before it and
// after it, and has another one take over. The API server is a real one; the
// tests play the rest of the cluster.
package crash

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/player"
	"github.com/trireme-mpi/trireme/internal/testing/shared"
)

const (
	mpiJob   = job.KindMPIJob
	trainJob = job.KindTrainJob
	// attempts are made to reach a write that does not come in every life.
	attempts = 3
	// livesAtATime: lives are mostly spent waiting.
	livesAtATime = "16"
)

// cluster is an API server with the CRDs of jobs, JobSets and groups.
type cluster struct {
	connection *rest.Config
	client     client.WithWatch
}

var sharedCluster = shared.Thing[*cluster]{Make: func(t testing.TB) *cluster {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	environment := controlplane.Start(t, &envtest.Environment{
		CRDDirectoryPaths: []string{
			filepath.Join(deployed.Repository(), "config/crd"), deployed.JobSetCRDs(t),
			filepath.Join(deployed.Repository(), "test/integration/operator/testdata"),
		},
		ErrorIfCRDPathMissing: true,
	})
	return &cluster{connection: environment.Config, client: player.Connect(t, environment.Config)}
}}

func TestMain(m *testing.M) {
	flag.Parse()
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
	clean        training.CleanPodPolicy
	script       func(*life)
}

// plainScheduler is one that is not known to place pods together.
const plainScheduler = "plain-scheduler"

func (story *story) job() client.Object {
	if story.kind == trainJob {
		return player.TrainJob("", "train", func(job *v2alpha1.TrainJob) { job.Spec.CleanPodPolicy = &story.clean })
	}
	return player.MPIJob("train", func(job *v2beta1.MPIJob) {
		job.Spec.RunPolicy.CleanPodPolicy = &story.clean
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

// stories are those of both kinds, with and without a gang.
func stories() (all []story) {
	for _, kind := range []job.Kind{mpiJob, trainJob} {
		for _, gang := range []bool{false, true} {
			for _, one := range []story{
				{name: "succeeds", clean: training.CleanPodPolicyRunning, script: succeeds},
				{name: "fails", clean: training.CleanPodPolicyRunning, script: fails},
				{name: "is suspended and resumed", clean: training.CleanPodPolicyAll, script: isSuspended},
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
	life.completes()
	life.settles("when it has succeeded")
	life.expires()
}

// fails: one of its workers runs out of memory.
func fails(life *life) {
	life.runs()
	life.outOfMemory(life.workers[1])
	life.untilPhase(training.PhaseFailed)
	life.settles("when it has failed")
}

// isSuspended: it runs twice, and of the first time nothing is left.
func isSuspended(life *life) {
	life.runs()
	life.suspend(true)
	life.settles("when it is suspended")
	life.suspend(false)
	life.runs()
	life.endsWell()
	life.settles("when it has succeeded")
}

// TestCrashAtEveryWrite leads each life once without a crash, and then with one
// before and after each write that the operator has made in it.
func TestCrashAtEveryWrite(t *testing.T) {
	cluster := sharedCluster.For(t)
	for _, story := range stories() {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			first := live(t, cluster, story, nil, nil).left
			t.Logf("%d writes", len(first.writes))
			for _, write := range first.writes {
				for _, after := range []bool{false, true} {
					crash := moment{write: write, after: after}
					t.Run(crash.String(), func(t *testing.T) {
						t.Parallel()
						liveWithCrash(t, cluster, story, &first, crash)
					})
				}
			}
		})
	}
}

// liveWithCrash: what comes of a life is what came of it without the crash.
func liveWithCrash(t *testing.T, cluster *cluster, story story, first *outcome, crash moment) {
	for range attempts {
		life := live(t, cluster, story, first, &crash)
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
		if life.crashed || t.Failed() {
			return
		}
	}
	t.Errorf("in %d lives the operator has never come to: %s", attempts, crash)
}
