package migrate

import (
	"fmt"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// policy is what the job says besides its pods and how they are placed.
func (migration *migration) policy() {
	old, made := &migration.old.Spec, &migration.trainJob.Spec
	made.Trainer.SlotsPerWorker = old.SlotsPerWorker
	migration.note("spec.slotsPerWorker", Mapped, inTrainJob("spec.trainer.slotsPerWorker"), "")
	if old.SlotsPerWorker == nil {
		// Which runtime it will be is not known yet, and they differ in it.
		made.Trainer.SlotsPerWorker = new(int32(1))
	}
	made.NetworkPolicy, made.RequireAllHosts = old.NetworkPolicy, old.RequireAllHosts
	migration.note("spec.networkPolicy", Mapped, inTrainJob("spec.networkPolicy"), "")
	migration.note("spec.requireAllHosts", Mapped, inTrainJob("spec.requireAllHosts"), "")
	migration.runtime.Spec.MLPolicy.MPIImplementation = v2alpha1.MPIImplementation(migration.before.MPI)
	to := inRuntime("spec.mlPolicy.mpiImplementation")
	if old.MPIImplementation == v2beta1.MPIImplementationIntel {
		migration.rewrite("spec.mpiImplementation", Moved, to, "IntelMPI is the name of Intel here")
	} else {
		migration.note("spec.mpiImplementation", Moved, to, "")
	}
	migration.launcherPolicy()
	migration.lifetime()
	migration.cleanup()
	migration.suspension()
}

func (migration *migration) launcherPolicy() {
	if migration.before.LauncherRunsRanks {
		migration.note("spec.runLauncherAsWorker", Look, "", fmt.Sprintf(
			"ranks of a TrainJob run on its workers only; for as many ranks as before set spec.trainer.numNodes to %d and correct what the command says of them",
			migration.before.Worker.Replicas+1))
	} else {
		migration.note("spec.runLauncherAsWorker", Dropped, "", "is false, and a TrainJob's launcher runs no ranks")
	}
	if migration.before.LauncherWaits {
		migration.note("spec.launcherCreationPolicy", Dropped, "",
			"the launcher's pod is placed together with the workers, and its command starts once every worker can be reached")
	} else {
		migration.note("spec.launcherCreationPolicy", Dropped, "", "is what a TrainJob always does")
	}
}

func (migration *migration) lifetime() {
	old, made := &migration.old.Spec.RunPolicy, &migration.trainJob.Spec
	made.TTLSecondsAfterFinished = old.TTLSecondsAfterFinished
	migration.note("spec.runPolicy.ttlSecondsAfterFinished", Mapped, inTrainJob("spec.ttlSecondsAfterFinished"), "")
	made.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	migration.note("spec.runPolicy.activeDeadlineSeconds", Mapped, inTrainJob("spec.activeDeadlineSeconds"), "")
	// Always written: a TrainJob that does not say it is not tried again.
	made.BackoffLimit = new(migration.before.Lifetime.BackoffLimit)
	const anew = "what starts anew after a failure is the whole job, workers too, and no longer the launcher alone"
	migration.note("spec.runPolicy.backoffLimit", Mapped, inTrainJob("spec.backoffLimit"), anew)
	if old.BackoffLimit == nil {
		migration.add(Entry{Path: "spec.runPolicy.backoffLimit", Outcome: Default, To: inTrainJob("spec.backoffLimit"),
			Why: fmt.Sprintf("is written as %d, which it is for an MPIJob and not for a TrainJob; %s", *made.BackoffLimit, anew)})
	}
	for _, role := range []v2beta1.MPIReplicaType{v2beta1.MPIReplicaTypeLauncher, v2beta1.MPIReplicaTypeWorker} {
		if replica := migration.old.Spec.MPIReplicaSpecs[role]; replica != nil {
			migration.restartPolicy(replicaPath(role)+".restartPolicy", replica.RestartPolicy)
		}
	}
}

func (migration *migration) restartPolicy(path string, policy v2beta1.RestartPolicy) {
	switch policy {
	case v2beta1.RestartPolicyNever:
		migration.note(path, Dropped, "", "the pods of a TrainJob are never started anew one by one")
	case v2beta1.RestartPolicyOnFailure:
		migration.note(path, Dropped, "", "a container that fails is not started anew in its pod: the job is, as often as spec.backoffLimit says")
	default:
		migration.note(path, Look, "", fmt.Sprintf("%s has no meaning for a TrainJob: one that fails starts anew as a whole, as often as spec.backoffLimit says", policy))
	}
}

// cleanup is which pods are deleted at the end. It can be written at two places.
func (migration *migration) cleanup() {
	const here, there = "spec.cleanPodPolicy", "spec.runPolicy.cleanPodPolicy"
	to := inTrainJob("spec.cleanPodPolicy")
	own, other := migration.old.Spec.CleanPodPolicy, migration.old.Spec.RunPolicy.CleanPodPolicy
	policy := migration.before.Lifetime.CleanPodPolicy
	if own != nil && other != nil && *own != *other {
		migration.note(there, Look, "", fmt.Sprintf("differs from spec.cleanPodPolicy, which was taken: %s", *own))
		other = nil
	}
	if own != nil || other != nil {
		migration.trainJob.Spec.CleanPodPolicy = &policy
	} else {
		migration.upstreamDefault(there, "mpi-operator deletes no pods at the end of a job that does not say it; here those that still run are deleted, of either kind")
	}
	migration.note(here, Mapped, to, "")
	if other != nil {
		migration.note(there, Mapped, to, "")
	}
}

// upstreamDefault is a default that mpi-operator has another of. A job that the
// cluster has already lives with ours.
func (migration *migration) upstreamDefault(path, why string) {
	if !migration.options.Accepted {
		migration.add(Entry{Path: path, Outcome: Default, Why: why})
	}
}

func (migration *migration) suspension() {
	old, made := &migration.old.Spec.RunPolicy, &migration.trainJob.Spec
	if migration.before.Queue != "" {
		migration.note("spec.runPolicy.suspend", Dropped, "", "Kueue holds the job back by what is made of it; a TrainJob that is suspended itself would stay so")
	} else {
		made.Suspend = old.Suspend
		migration.note("spec.runPolicy.suspend", Mapped, inTrainJob("spec.suspend"), "")
	}
	switch migration.before.ManagedBy {
	case "":
		migration.note("spec.runPolicy.managedBy", Dropped, "", "names the operator itself, which is who runs a TrainJob that says nothing")
	case training.ManagedByMultiKueue:
		migration.note("spec.runPolicy.managedBy", Look, "", "MultiKueue does not run TrainJobs: without it the operator of this cluster runs the job")
	default:
		migration.note("spec.runPolicy.managedBy", Look, "", "who this names does not run TrainJobs, as far as is known here; without it the operator runs the job")
	}
}

// gang is how the pods are placed together.
func (migration *migration) gang() {
	const at = "spec.runPolicy.schedulingPolicy"
	before := &migration.before.Gang
	policy := &v2alpha1.PodGroupPolicy{PriorityClass: before.PriorityClass}
	migration.note(at+".priorityClass", Moved, inRuntime("spec.podGroupPolicy.priorityClass"), "")
	if pods := migration.before.Pods(); before.MinMember == pods {
		migration.note(at+".minAvailable", Dropped, "", "is the number of all pods, which is what a TrainJob waits for")
	} else {
		migration.note(at+".minAvailable", Look, "", fmt.Sprintf("a TrainJob starts when all of its %d pods have a place, and not with fewer", pods))
	}
	migration.note(at+".minResources", Look, "", "a TrainJob waits for what its pods ask for in sum; let the pods ask for what they need")
	scheduler := migration.scheduler()
	switch scheduler {
	case job.Volcano:
		policy.Volcano = &v2alpha1.VolcanoPolicy{Queue: before.Queue, GangPolicy: v2alpha1.GangPolicy{ScheduleTimeoutSeconds: migration.timeout("volcano")}}
	case job.Coscheduling:
		policy.Coscheduling = &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: migration.timeout("coscheduling")}
	case job.KAI:
		policy.KAI = &v2alpha1.KAIPolicy{Queue: before.Queue, GangPolicy: v2alpha1.GangPolicy{ScheduleTimeoutSeconds: migration.timeout("kai")}}
	case job.Native:
		policy.Native = &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: migration.timeout("native")}
	default:
		migration.timeoutOfNobody()
	}
	migration.note(at+".queue", Moved, inRuntime("spec.podGroupPolicy."+string(scheduler)+".queue"), fmt.Sprintf("the runtime sets %s, which has queues", scheduler))
	if *policy != (v2alpha1.PodGroupPolicy{}) {
		migration.runtime.Spec.PodGroupPolicy = policy
	}
}

// scheduler is the one that places the pods together, as far as it is known.
func (migration *migration) scheduler() job.Scheduler {
	if migration.before.Gang.Queue != "" && !gang.HasQueues(migration.options.Scheduler) {
		return job.Volcano
	}
	// Kueue does not pass on what native gangs need.
	if migration.options.Scheduler == job.Native && migration.before.Queue != "" {
		return ""
	}
	return migration.options.Scheduler
}

const timeoutPath = "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds"

// timeout is the longest that the pods may wait, within what a runtime may say.
func (migration *migration) timeout(scheduler string) *int32 {
	limits := &migration.options.Config.Limits
	to := inRuntime("spec.podGroupPolicy." + scheduler + ".scheduleTimeoutSeconds")
	least, most := limits.MinScheduleTimeoutSeconds, limits.MaxScheduleTimeoutSeconds
	// The model has a short time raised already, and says nothing of it.
	written := int32(0)
	if policy := migration.old.Spec.RunPolicy.SchedulingPolicy; policy != nil && policy.ScheduleTimeoutSeconds != nil {
		written = *policy.ScheduleTimeoutSeconds
	}
	switch seconds := written; {
	case seconds == 0:
		migration.note(timeoutPath, Dropped, "", "is 0, which is no limit")
		migration.add(Entry{Path: timeoutPath, Outcome: Default, To: to,
			Why: fmt.Sprintf("an MPIJob without it waits for its places for ever; a TrainJob fails after %d s, the most there can be", most)})
		return new(most)
	case seconds < least || seconds > most:
		nearest := min(max(seconds, least), most)
		migration.rewrite(timeoutPath, Moved, to, fmt.Sprintf("is %d, the nearest that there can be", nearest))
		return &nearest
	default:
		migration.note(timeoutPath, Moved, to, "")
		return &seconds
	}
}

// timeoutOfNobody: a runtime that does not name a scheduler cannot say how long.
func (migration *migration) timeoutOfNobody() {
	usual := migration.rules.Defaults.ScheduleTimeoutSeconds
	switch seconds := migration.before.Gang.TimeoutSeconds; seconds {
	case 0:
		migration.note(timeoutPath, Dropped, "", "is 0, which is no limit")
		migration.add(Entry{Path: timeoutPath, Outcome: Default,
			Why: fmt.Sprintf("an MPIJob without it waits for its places for ever; a TrainJob fails after %d s. For longer, name the cluster's gang scheduler with --scheduler", usual)})
	case usual:
		migration.note(timeoutPath, Dropped, "", "is the time that a TrainJob waits anyway")
	default:
		migration.note(timeoutPath, Look, "", fmt.Sprintf(
			"a TrainJob waits for %d s unless its runtime names the gang scheduler; name the cluster's with --scheduler, and the time goes with it", usual))
	}
}
