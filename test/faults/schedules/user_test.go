// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// name is that of the one job of a schedule, and of those that follow it.
var name = client.ObjectKey{Namespace: "team", Name: "train"}

// wish is the job that a schedule is about.
type wish struct {
	kind    job.Kind
	gang    bool
	workers int32
	backoff int32
	policy  training.CleanPodPolicy
	life    *int32
	// deadline is how long it may run.
	deadline *int64
	// restartPolicy and waits are of MPIJobs, fetches of TrainJobs.
	restartPolicy v2beta1.RestartPolicy
	waits         bool
	fetches       bool
	guarded       bool
	timeout       int32
}

func newWish(dice *rand.Rand) wish {
	wish := wish{
		kind: pick(dice, job.KindMPIJob, job.KindTrainJob), gang: dice.IntN(3) == 0, workers: 1 + dice.Int32N(3), backoff: pick(dice, int32(0), 1, 1, 2),
		policy:        pick(dice, training.CleanPodPolicyRunning, training.CleanPodPolicyRunning, training.CleanPodPolicyAll, training.CleanPodPolicyNone),
		restartPolicy: pick(dice, v2beta1.RestartPolicyNever, v2beta1.RestartPolicyNever, v2beta1.RestartPolicyOnFailure),
		waits:         dice.IntN(3) == 0, fetches: dice.IntN(4) == 0, guarded: dice.IntN(4) == 0, timeout: pick(dice, int32(60), 300, 3600),
	}
	if dice.IntN(4) == 0 {
		wish.life = new(dice.Int32N(120))
	}
	if dice.IntN(5) == 0 {
		wish.deadline = new(20 + dice.Int64N(200))
	}
	return wish
}

func pick[T any](dice *rand.Rand, choices ...T) T { return choices[dice.IntN(len(choices))] }

func (wish *wish) isTrainJob() bool { return wish.kind == job.KindTrainJob }

func (wish *wish) String() string {
	life, deadline := "for ever", "for ever"
	if wish.life != nil {
		life = fmt.Sprintf("%d s", *wish.life)
	}
	if wish.deadline != nil {
		deadline = fmt.Sprintf("%d s", *wish.deadline)
	}
	return fmt.Sprintf("%s, gang %t, %d workers, backoff %d, clean %s, stays %s, runs %s, restart %s, waits %t, fetches %t, guarded %t, timeout %d s", wish.kind, wish.gang,
		wish.workers, wish.backoff, wish.policy, life, deadline, wish.restartPolicy, wish.waits, wish.fetches, wish.guarded, wish.timeout)
}

// hosts are the names of the workers' hosts.
func (wish *wish) hosts() (hosts []string) {
	infix := "-worker-"
	if wish.isTrainJob() {
		infix = "-worker-0-"
	}
	for index := range wish.workers {
		hosts = append(hosts, fmt.Sprintf("%s%s%d", name.Name, infix, index))
	}
	return hosts
}

func template(name string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "registry.example.com/train:1"}}}}
}

func (wish *wish) networkPolicy() *training.NetworkPolicy {
	if !wish.guarded {
		return nil
	}
	return &training.NetworkPolicy{Template: training.NetworkPolicyDefault}
}

func (wish *wish) object(suspended bool) client.Object {
	metadata := metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}
	if wish.isTrainJob() {
		return wish.trainJob(metadata, suspended)
	}
	mpiJob := &v2beta1.MPIJob{ObjectMeta: metadata, Spec: v2beta1.MPIJobSpec{
		CleanPodPolicy: &wish.policy, NetworkPolicy: wish.networkPolicy(),
		RunPolicy: v2beta1.RunPolicy{BackoffLimit: &wish.backoff, TTLSecondsAfterFinished: wish.life, ActiveDeadlineSeconds: wish.deadline, Suspend: &suspended,
			SchedulingPolicy: &v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: &wish.timeout}},
		MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {RestartPolicy: wish.restartPolicy, Template: template("launcher")},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: &wish.workers, Template: template("worker")},
		},
	}}
	if wish.waits {
		mpiJob.Spec.LauncherCreationPolicy = v2beta1.LauncherCreationPolicyWaitForWorkersReady
	}
	return mpiJob
}

func (wish *wish) trainJob(metadata metav1.ObjectMeta, suspended bool) *v2alpha1.TrainJob {
	trainJob := &v2alpha1.TrainJob{ObjectMeta: metadata, Spec: v2alpha1.TrainJobSpec{
		RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "runtime"},
		Trainer:    v2alpha1.Trainer{NumNodes: &wish.workers, Image: "registry.example.com/train:1", Command: []string{"python", "train.py"}},
		Suspend:    &suspended, CleanPodPolicy: &wish.policy, BackoffLimit: &wish.backoff, TTLSecondsAfterFinished: wish.life, ActiveDeadlineSeconds: wish.deadline,
		NetworkPolicy: wish.networkPolicy(),
	}}
	if wish.fetches {
		trainJob.Spec.Initializer = &v2alpha1.Initializer{Dataset: &v2alpha1.Source{StorageURI: "s3://data/set"}}
	}
	return trainJob
}

// runtimeVariable tells which state of the runtime a pod was created from.
const runtimeVariable = "RUNTIME"

func (wish *wish) runtime(state int) *v2alpha1.ClusterTrainingRuntime {
	template := func(name string) corev1.PodTemplateSpec {
		made := template(name)
		made.Spec.Containers[0].Env = []corev1.EnvVar{{Name: runtimeVariable, Value: strconv.Itoa(state)}}
		return made
	}
	return &v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "runtime"}, Spec: v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: template("launcher")},
			{Name: v2alpha1.ReplicatedJobWorker, Template: template("worker")},
		}}},
	}}
}

// present is the job as it is stored; nil if there is none.
func (simulation *simulation) present() client.Object {
	found, _ := simulation.server.get(string(simulation.wish.kind), name)
	return found
}

// user are the steps that people could take now. Without the webhook the API server
// takes no job and no change of one.
func (simulation *simulation) user() (steps []step) {
	there, profile := simulation.present(), &simulation.profile
	add := func(name string, weight int, do func()) {
		if weight > 0 {
			steps = append(steps, step{"user: " + name, weight, do})
		}
	}
	if there == nil && !simulation.webhookDown && simulation.creations < 1+profile.creations {
		add("creates the job", 6, simulation.create)
	}
	if there != nil && there.GetDeletionTimestamp() == nil {
		if !simulation.webhookDown {
			add("suspends or resumes the job", profile.suspensions, func() { simulation.toggle(there) })
		}
		add("deletes the job", profile.deletions, func() { simulation.deleteJob(there, metav1.DeletePropagationBackground) })
		add("deletes the job in the foreground", profile.deletions, func() { simulation.deleteJob(there, metav1.DeletePropagationForeground) })
	}
	if simulation.wish.isTrainJob() {
		add("changes the runtime", profile.runtimes, simulation.changeRuntime)
	}
	kinds := []string{"Pod", "Job", "JobSet", "PodGroup"}
	if profile.runtimes == 0 {
		// Else nobody could know what was in it.
		kinds = append(kinds, "ControllerRevision")
	}
	for _, kind := range kinds {
		for _, object := range simulation.server.all(kind) {
			if object.GetDeletionTimestamp() == nil {
				add("deletes "+kind+" "+object.GetName(), profile.handDeletions, func() { simulation.deleteByHand(object) })
			}
		}
	}
	return steps
}

// changeRuntime is the platform team's. Jobs that exist keep what they have.
func (simulation *simulation) changeRuntime() {
	simulation.runtimes++
	next := simulation.wish.runtime(simulation.runtimes)
	there := simulation.server.all("ClusterTrainingRuntime")[0]
	next.ObjectMeta = *there.(*v2alpha1.ClusterTrainingRuntime).ObjectMeta.DeepCopy()
	simulation.server.replace(next)
}

// deleteByHand takes something from a job. A PodGroup and a snapshot are created again,
// and their deletion does no harm.
func (simulation *simulation) deleteByHand(object client.Object) {
	switch kindOf(object) {
	case "PodGroup":
	case "ControllerRevision":
		simulation.handDeleted = true
	default:
		if root := simulation.roots[object.GetUID()]; kindOf(object) == "JobSet" && simulation.named[root] == "" {
			simulation.undecided[root] = true
		}
		simulation.bad(object, "deleted by hand")
	}
	simulation.delete(object, pick(simulation.dice, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground))
}

func (simulation *simulation) create() {
	simulation.creations++
	made, err := simulation.server.create(simulation.wish.object(simulation.happens(simulation.profile.bornSuspended)))
	if err != nil {
		panic(err)
	}
	simulation.born[made.GetUID()] = simulation.runtimes
	simulation.note("created: %s", made.GetUID())
}

func (simulation *simulation) deleteJob(there client.Object, policy metav1.DeletionPropagation) {
	simulation.deletedByUser[there.GetUID()] = true
	simulation.delete(there, policy)
}

func isSuspended(object client.Object) bool { return **suspendField(object) }

func suspendField(object client.Object) **bool {
	if trainJob, is := object.(*v2alpha1.TrainJob); is {
		return &trainJob.Spec.Suspend
	}
	return &object.(*v2beta1.MPIJob).Spec.RunPolicy.Suspend
}

func (simulation *simulation) toggle(there client.Object) {
	next := there.DeepCopyObject().(client.Object)
	*suspendField(next) = new(!isSuspended(there))
	next.SetGeneration(there.GetGeneration() + 1)
	simulation.facts(there.GetUID()).suspend()
	simulation.server.replace(next)
}
