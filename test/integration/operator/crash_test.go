package operator

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

const (
	crashes = 10
	// crashSeed makes the moments of the crashes the same each time, as far as two
	// processes can agree on a moment.
	crashSeed = 20261115
)

// crashWorkers is how many workers an MPIJob has that the operator dies over: so
// many that it takes a while.
const crashWorkers = 20

// objectsOf are the names of what a job is made of.
func objectsOf(job client.Object) []string {
	kinds := []string{"ConfigMap/%s-hostfile", "ControllerRevision/%s-runtime", "JobSet/%s", "PodGroup/%s", "Secret/%s-ssh"}
	if isMPIJob(job) {
		kinds = []string{"ConfigMap/%s-hostfile", "Job/%s-launcher", "PodGroup/%s", "Secret/%s-ssh-key", "Service/%s-worker"}
		for index := range crashWorkers {
			kinds = append(kinds, fmt.Sprintf("Pod/%%s-worker-%d", index))
		}
	}
	made := make([]string, len(kinds))
	for i, kind := range kinds {
		made[i] = fmt.Sprintf(kind, job.GetName())
	}
	return made
}

// The operator dies, ten times, in the middle of the start of a job. Whoever
// comes next finishes what it began: nothing is missing and nothing is there
// twice.
func TestCrashes(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t, withJobSet)
	// A Lease of a process that was killed holds for fifteen seconds, which is too
	// long to wait for ten times. TestNothingIsUpdated waits for it once.
	cluster.settings.LeaderElection.Enabled = false
	// So slow that a crash meets a job which is half made.
	cluster.settings.Client.QPS, cluster.settings.Client.Burst = 25, 5
	place := cluster.newPlace(t, withoutAdmission)
	place.create(runtime("mpi"))

	random := rand.New(rand.NewPCG(crashSeed, crashSeed))
	var jobs []client.Object
	halves := 0
	for round := range crashes {
		var job client.Object = mpiJob(fmt.Sprintf("job-%d", round), func(job *v2beta1.MPIJob) {
			job.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Replicas = new(int32(crashWorkers))
		})
		if round%2 == 1 {
			job = trainJob("", fmt.Sprintf("job-%d", round))
		}
		place.create(job)
		jobs = append(jobs, job)
		if place.crash(job, time.Duration(random.IntN(800))*time.Millisecond) {
			halves++
		}
	}
	t.Logf("%d of %d crashes left a job half made", halves, crashes)
	if halves == 0 {
		t.Error("no crash met a job that was being made")
	}

	cluster.settings.Client.QPS, cluster.settings.Client.Burst = 500, 1000
	cluster.start(t)
	var want []string
	for _, job := range jobs {
		want = append(want, objectsOf(job)...)
	}
	objects := place.untilObjects(want...)
	place.stays("nothing more is made", func() error { return place.wantObjects(want...) })
	for _, job := range jobs {
		place.untilPhase(job, training.PhasePending)
		for _, name := range objectsOf(job) {
			if owners := objects[name].OwnerReferences; len(owners) != 1 || owners[0].UID != job.GetUID() {
				t.Errorf("%s belongs to %v", name, owners)
			}
		}
	}
	launcher, _ := place.runs(jobs[1])
	place.exit(launcher, 0, report("", 2))
	place.untilPhase(jobs[1], training.PhaseSucceeded)
}

// crash runs an operator until a moment after it has begun with a job, kills it,
// and tells whether the job was half made.
func (place *place) crash(job client.Object, after time.Duration) bool {
	place.Helper()
	operator := deployed.Start(place.T, place.environment, place.settings)
	for begin := time.Now(); progressOf(job).Phase == ""; time.Sleep(5 * time.Millisecond) {
		if mustGet(place, job, job.GetName()); time.Since(begin) > time.Minute {
			place.Fatalf("the operator has not begun with %s:\n%s", job.GetName(), operator.Log)
		}
	}
	time.Sleep(after)
	operator.Kill()
	wantNoErrors(place, operator)
	objects := place.objects()
	there := 0
	for _, name := range objectsOf(job) {
		if objects[name] != nil {
			there++
		}
	}
	place.Logf("killed after %s, with %d of %d objects of %s", after, there, len(objectsOf(job)), job.GetName())
	return there > 0 && there < len(objectsOf(job))
}
