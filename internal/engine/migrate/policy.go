package migrate

import (
	"fmt"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// policy converts the fields that are not about pods or scheduling.
func (migration *migration) policy() {
	old, converted := &migration.old.Spec, &migration.trainJob.Spec
	converted.Trainer.SlotsPerWorker = old.SlotsPerWorker
	migration.note("spec.slotsPerWorker", Mapped, inTrainJob("spec.trainer.slotsPerWorker"), "")
	if old.SlotsPerWorker == nil {
		// The runtime is not chosen yet, and runtimes have different defaults.
		converted.Trainer.SlotsPerWorker = new(int32(1))
	}
	converted.NetworkPolicy, converted.RequireAllHosts = old.NetworkPolicy, old.RequireAllHosts
	migration.note("spec.networkPolicy", Mapped, inTrainJob("spec.networkPolicy"), "")
	migration.note("spec.requireAllHosts", Mapped, inTrainJob("spec.requireAllHosts"), "")
	migration.runtime.Spec.MLPolicy.MPIImplementation = v2alpha1.MPIImplementation(migration.before.MPI)
	to := inRuntime("spec.mlPolicy.mpiImplementation")
	if old.MPIImplementation == v2beta1.MPIImplementationIntel {
		migration.rewrite("spec.mpiImplementation", Moved, to, "Intel is called IntelMPI in a runtime")
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
			"ranks of a TrainJob only run on its workers; for the same number of ranks set spec.trainer.numNodes to %d and correct the number in the command",
			migration.before.Worker.Replicas+1))
	} else {
		migration.note("spec.runLauncherAsWorker", Dropped, "", "is false, and a TrainJob's launcher runs no ranks")
	}
	if migration.before.LauncherWaits {
		migration.note("spec.launcherCreationPolicy", Dropped, "",
			"the launcher's pod is scheduled together with the workers, and its command starts when every worker can be reached")
	} else {
		migration.note("spec.launcherCreationPolicy", Dropped, "", "is always the case for a TrainJob")
	}
}

func (migration *migration) lifetime() {
	old, converted := &migration.old.Spec.RunPolicy, &migration.trainJob.Spec
	converted.TTLSecondsAfterFinished = old.TTLSecondsAfterFinished
	migration.note("spec.runPolicy.ttlSecondsAfterFinished", Mapped, inTrainJob("spec.ttlSecondsAfterFinished"), "")
	converted.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	migration.note("spec.runPolicy.activeDeadlineSeconds", Mapped, inTrainJob("spec.activeDeadlineSeconds"), "")
	// Always set: the default of a TrainJob is not to restart.
	converted.BackoffLimit = new(migration.before.Lifetime.BackoffLimit)
	const restart = "a failure restarts the whole job with its workers, not only the launcher"
	migration.note("spec.runPolicy.backoffLimit", Mapped, inTrainJob("spec.backoffLimit"), restart)
	if old.BackoffLimit == nil {
		migration.add(Entry{Path: "spec.runPolicy.backoffLimit", Outcome: Default, To: inTrainJob("spec.backoffLimit"),
			Why: fmt.Sprintf("is set to %d, the default of an MPIJob; a TrainJob has another default; %s", *converted.BackoffLimit, restart)})
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
		migration.note(path, Dropped, "", "single pods of a TrainJob are never restarted")
	case v2beta1.RestartPolicyOnFailure:
		migration.note(path, Dropped, "", "a failed container is not restarted in its pod: the whole job is restarted, up to spec.backoffLimit times")
	default:
		migration.note(path, Look, "", fmt.Sprintf("%s has no equivalent in a TrainJob: a failed job is restarted as a whole, up to spec.backoffLimit times", policy))
	}
}

// cleanup converts cleanPodPolicy, which an MPIJob has in two fields.
func (migration *migration) cleanup() {
	const inSpec, inRunPolicy = "spec.cleanPodPolicy", "spec.runPolicy.cleanPodPolicy"
	to := inTrainJob("spec.cleanPodPolicy")
	own, other := migration.old.Spec.CleanPodPolicy, migration.old.Spec.RunPolicy.CleanPodPolicy
	policy := migration.before.Lifetime.CleanPodPolicy
	if own != nil && other != nil && *own != *other {
		migration.note(inRunPolicy, Look, "", fmt.Sprintf("differs from spec.cleanPodPolicy, which was used: %s", *own))
		other = nil
	}
	if own != nil || other != nil {
		migration.trainJob.Spec.CleanPodPolicy = &policy
	} else {
		migration.upstreamDefault(inRunPolicy, "by default mpi-operator deletes no pods when a job finishes; here running pods are deleted, for MPIJobs and TrainJobs")
	}
	migration.note(inSpec, Mapped, to, "")
	if other != nil {
		migration.note(inRunPolicy, Mapped, to, "")
	}
}

// upstreamDefault reports a default that differs from mpi-operator's. A job from the
// cluster already has ours.
func (migration *migration) upstreamDefault(path, why string) {
	if !migration.options.Accepted {
		migration.add(Entry{Path: path, Outcome: Default, Why: why})
	}
}

func (migration *migration) suspension() {
	old, converted := &migration.old.Spec.RunPolicy, &migration.trainJob.Spec
	if migration.before.Queue != "" {
		migration.note("spec.runPolicy.suspend", Dropped, "", "Kueue suspends the objects that the operator creates for the TrainJob; a TrainJob with suspend would stay suspended")
	} else {
		converted.Suspend = old.Suspend
		migration.note("spec.runPolicy.suspend", Mapped, inTrainJob("spec.suspend"), "")
	}
	switch migration.before.ManagedBy {
	case "":
		migration.note("spec.runPolicy.managedBy", Dropped, "", "is the operator itself, which is the default of a TrainJob")
	case training.ManagedByMultiKueue:
		migration.note("spec.runPolicy.managedBy", Look, "", "MultiKueue does not support TrainJobs: without managedBy the operator of this cluster runs the job")
	default:
		migration.note("spec.runPolicy.managedBy", Look, "", "this controller is not known to run TrainJobs; without managedBy the operator runs the job")
	}
}

// gang converts the gang scheduling policy.
func (migration *migration) gang() {
	const at = "spec.runPolicy.schedulingPolicy"
	before := &migration.before.Gang
	policy := &v2alpha1.PodGroupPolicy{PriorityClass: before.PriorityClass}
	migration.note(at+".priorityClass", Moved, inRuntime("spec.podGroupPolicy.priorityClass"), "")
	if pods := migration.before.Pods(); before.MinMember == pods {
		migration.note(at+".minAvailable", Dropped, "", "is the number of all pods, which is the default of a TrainJob")
	} else {
		migration.note(at+".minAvailable", Look, "", fmt.Sprintf("a TrainJob only starts when all of its %d pods can be scheduled", pods))
	}
	migration.note(at+".minResources", Look, "", "a TrainJob waits for the sum of its pods' requests; set the requests of the pods")
	scheduler := migration.scheduler()
	switch scheduler {
	case job.Volcano:
		policy.Volcano = &v2alpha1.VolcanoPolicy{Queue: before.Queue, GangPolicy: v2alpha1.GangPolicy{ScheduleTimeoutSeconds: migration.timeout("volcano")}}
	case job.Coscheduling:
		policy.Coscheduling = &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: migration.timeout("coscheduling")}
	case job.Native:
		policy.Native = &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: migration.timeout("native")}
	default:
		migration.timeoutWithoutScheduler()
	}
	migration.note(at+".queue", Moved, inRuntime("spec.podGroupPolicy.volcano.queue"), "only Volcano has such queues, so the runtime uses Volcano")
	if *policy != (v2alpha1.PodGroupPolicy{}) {
		migration.runtime.Spec.PodGroupPolicy = policy
	}
}

// scheduler returns the gang scheduler, if it is known.
func (migration *migration) scheduler() job.Scheduler {
	if migration.before.Gang.Queue != "" {
		return job.Volcano
	}
	// Kueue does not pass on the fields that native gangs need.
	if migration.options.Scheduler == job.Native && migration.before.Queue != "" {
		return ""
	}
	return migration.options.Scheduler
}

const timeoutPath = "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds"

// timeout converts the scheduling timeout, within the limits of a runtime.
func (migration *migration) timeout(scheduler string) *int32 {
	limits := &migration.options.Config.Limits
	to := inRuntime("spec.podGroupPolicy." + scheduler + ".scheduleTimeoutSeconds")
	least, most := limits.MinScheduleTimeoutSeconds, limits.MaxScheduleTimeoutSeconds
	// The model has already raised a timeout that is too short.
	written := int32(0)
	if policy := migration.old.Spec.RunPolicy.SchedulingPolicy; policy != nil && policy.ScheduleTimeoutSeconds != nil {
		written = *policy.ScheduleTimeoutSeconds
	}
	switch seconds := written; {
	case seconds == 0:
		migration.note(timeoutPath, Dropped, "", "is 0, which is no limit")
		migration.add(Entry{Path: timeoutPath, Outcome: Default, To: to,
			Why: fmt.Sprintf("an MPIJob without it waits forever to be scheduled; a TrainJob fails after %d s, the maximum", most)})
		return new(most)
	case seconds < least || seconds > most:
		nearest := min(max(seconds, least), most)
		migration.rewrite(timeoutPath, Moved, to, fmt.Sprintf("is %d, the nearest allowed value", nearest))
		return &nearest
	default:
		migration.note(timeoutPath, Moved, to, "")
		return &seconds
	}
}

// timeoutWithoutScheduler reports the timeout for a runtime without a gang scheduler,
// which cannot have one.
func (migration *migration) timeoutWithoutScheduler() {
	usual := migration.rules.Defaults.ScheduleTimeoutSeconds
	switch seconds := migration.before.Gang.TimeoutSeconds; seconds {
	case 0:
		migration.note(timeoutPath, Dropped, "", "is 0, which is no limit")
		migration.add(Entry{Path: timeoutPath, Outcome: Default,
			Why: fmt.Sprintf("an MPIJob without it waits forever to be scheduled; a TrainJob fails after %d s. For a longer timeout, set the cluster's gang scheduler with --scheduler", usual)})
	case usual:
		migration.note(timeoutPath, Dropped, "", "is the default of a TrainJob")
	default:
		migration.note(timeoutPath, Look, "", fmt.Sprintf(
			"a TrainJob waits for %d s unless its runtime has a gang scheduler; set the cluster's with --scheduler to keep the timeout", usual))
	}
}
