// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// policy converts the fields that are not about pods or scheduling.
func (m *migration) policy() {
	old, converted := &m.old.Spec, &m.trainJob.Spec
	converted.Trainer.SlotsPerWorker = old.SlotsPerWorker
	m.note("spec.slotsPerWorker", Mapped, inTrainJob("spec.trainer.slotsPerWorker"), "")
	if old.SlotsPerWorker == nil {
		// The runtime is not chosen yet, and runtimes have different defaults.
		converted.Trainer.SlotsPerWorker = new(int32(1))
	}
	converted.NetworkPolicy, converted.RequireAllHosts = old.NetworkPolicy, old.RequireAllHosts
	m.note("spec.networkPolicy", Mapped, inTrainJob("spec.networkPolicy"), "")
	m.note("spec.requireAllHosts", Mapped, inTrainJob("spec.requireAllHosts"), "")
	converted.Trainer.ProgressPattern = old.ProgressPattern
	m.note("spec.progressPattern", Mapped, inTrainJob("spec.trainer.progressPattern"), "")
	m.runtime.Spec.MLPolicy.MPIImplementation = v2alpha1.MPIImplementation(m.before.MPI)
	to := inRuntime("spec.mlPolicy.mpiImplementation")
	if old.MPIImplementation == v2beta1.MPIImplementationIntel {
		m.rewrite("spec.mpiImplementation", Moved, to, "Intel is called IntelMPI in a runtime")
	} else {
		m.note("spec.mpiImplementation", Moved, to, "")
	}
	m.launcherPolicy()
	m.lifetime()
	m.cleanup()
	m.suspension()
}

func (m *migration) launcherPolicy() {
	if m.before.LauncherRunsRanks {
		m.note("spec.runLauncherAsWorker", Review, "", fmt.Sprintf(
			"ranks of a TrainJob only run on its workers; for the same number of ranks set spec.trainer.numNodes to %d and correct the number in the command",
			m.before.Worker.Replicas+1))
	} else {
		m.note("spec.runLauncherAsWorker", Dropped, "", "is false, and a TrainJob's launcher runs no ranks")
	}
	if m.before.LauncherWaits {
		m.note("spec.launcherCreationPolicy", Dropped, "",
			"the launcher's pod is scheduled together with the workers, and its command starts when every worker can be reached")
	} else {
		m.note("spec.launcherCreationPolicy", Dropped, "", "is always the case for a TrainJob")
	}
}

func (m *migration) lifetime() {
	old, converted := &m.old.Spec.RunPolicy, &m.trainJob.Spec
	converted.TTLSecondsAfterFinished = old.TTLSecondsAfterFinished
	m.note("spec.runPolicy.ttlSecondsAfterFinished", Mapped, inTrainJob("spec.ttlSecondsAfterFinished"), "")
	converted.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	m.note("spec.runPolicy.activeDeadlineSeconds", Mapped, inTrainJob("spec.activeDeadlineSeconds"), "")
	converted.Hang = old.Hang
	m.note("spec.runPolicy.hang", Mapped, inTrainJob("spec.hang"), "")
	// Always set: the default of a TrainJob is not to restart.
	converted.BackoffLimit = new(m.before.Lifetime.BackoffLimit)
	const restart = "a failure restarts the whole job with its workers, not only the launcher"
	m.note("spec.runPolicy.backoffLimit", Mapped, inTrainJob("spec.backoffLimit"), restart)
	if old.BackoffLimit == nil {
		m.add(Entry{Path: "spec.runPolicy.backoffLimit", Outcome: Default, To: inTrainJob("spec.backoffLimit"),
			Why: fmt.Sprintf("is set to %d, the default of an MPIJob; a TrainJob has another default; %s", *converted.BackoffLimit, restart)})
	}
	for _, role := range []v2beta1.MPIReplicaType{v2beta1.MPIReplicaTypeLauncher, v2beta1.MPIReplicaTypeWorker} {
		if replica := m.old.Spec.MPIReplicaSpecs[role]; replica != nil {
			m.restartPolicy(replicaPath(role)+".restartPolicy", replica.RestartPolicy)
		}
	}
}

func (m *migration) restartPolicy(path string, policy v2beta1.RestartPolicy) {
	switch policy {
	case v2beta1.RestartPolicyNever:
		m.note(path, Dropped, "", "single pods of a TrainJob are never restarted")
	case v2beta1.RestartPolicyOnFailure:
		m.note(path, Dropped, "", "a failed container is not restarted in its pod: the whole job is restarted, up to spec.backoffLimit times")
	default:
		m.note(path, Review, "", fmt.Sprintf("%s has no equivalent in a TrainJob: a failed job is restarted as a whole, up to spec.backoffLimit times", policy))
	}
}

// cleanup converts cleanPodPolicy, which an MPIJob has in two fields.
func (m *migration) cleanup() {
	const inSpec, inRunPolicy = "spec.cleanPodPolicy", "spec.runPolicy.cleanPodPolicy"
	to := inTrainJob("spec.cleanPodPolicy")
	own, other := m.old.Spec.CleanPodPolicy, m.old.Spec.RunPolicy.CleanPodPolicy
	policy := m.before.Lifetime.CleanPodPolicy
	if own != nil && other != nil && *own != *other {
		m.note(inRunPolicy, Review, "", fmt.Sprintf("differs from spec.cleanPodPolicy, which was used: %s", *own))
		other = nil
	}
	if own != nil || other != nil {
		m.trainJob.Spec.CleanPodPolicy = &policy
	} else {
		m.upstreamDefault(inRunPolicy, "by default mpi-operator deletes no pods when a job finishes; here running pods are deleted, for MPIJobs and TrainJobs")
	}
	m.note(inSpec, Mapped, to, "")
	if other != nil {
		m.note(inRunPolicy, Mapped, to, "")
	}
}

// upstreamDefault reports a default that differs from mpi-operator's. A job from the
// cluster already has ours.
func (m *migration) upstreamDefault(path, why string) {
	if !m.options.Accepted {
		m.add(Entry{Path: path, Outcome: Default, Why: why})
	}
}

func (m *migration) suspension() {
	old, converted := &m.old.Spec.RunPolicy, &m.trainJob.Spec
	if m.before.Queue != "" {
		m.note("spec.runPolicy.suspend", Dropped, "", "Kueue suspends the objects that the operator creates for the TrainJob; a TrainJob with suspend would stay suspended")
	} else {
		converted.Suspend = old.Suspend
		m.note("spec.runPolicy.suspend", Mapped, inTrainJob("spec.suspend"), "")
	}
	switch m.before.ManagedBy {
	case "":
		m.note("spec.runPolicy.managedBy", Dropped, "", "is the operator itself, which is the default of a TrainJob")
	case training.ManagedByMultiKueue:
		m.note("spec.runPolicy.managedBy", Review, "", "MultiKueue does not support TrainJobs: without managedBy the operator of this cluster runs the job")
	default:
		m.note("spec.runPolicy.managedBy", Review, "", "this controller is not known to run TrainJobs; without managedBy the operator runs the job")
	}
}

// gang converts the gang scheduling policy.
func (m *migration) gang() {
	const at = "spec.runPolicy.schedulingPolicy"
	before := &m.before.Gang
	policy := &v2alpha1.PodGroupPolicy{PriorityClass: before.PriorityClass}
	m.note(at+".priorityClass", Moved, inRuntime("spec.podGroupPolicy.priorityClass"), "")
	if pods := m.before.Pods(); before.MinMember == pods {
		m.note(at+".minAvailable", Dropped, "", "is the number of all pods, which is the default of a TrainJob")
	} else {
		m.note(at+".minAvailable", Review, "", fmt.Sprintf("a TrainJob only starts when all of its %d pods can be scheduled", pods))
	}
	m.note(at+".minResources", Review, "", "a TrainJob waits for the sum of its pods' requests; set the requests of the pods")
	scheduler := m.scheduler()
	switch scheduler {
	case job.Volcano:
		policy.Volcano = &v2alpha1.QueuedGangPolicy{Queue: before.Queue, GangPolicy: v2alpha1.GangPolicy{ScheduleTimeoutSeconds: m.timeout("volcano")}}
	case job.Coscheduling:
		policy.Coscheduling = &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: m.timeout("coscheduling")}
	case job.KAI:
		policy.KAI = &v2alpha1.QueuedGangPolicy{Queue: before.Queue, GangPolicy: v2alpha1.GangPolicy{ScheduleTimeoutSeconds: m.timeout("kai")}}
	case job.Native:
		policy.Native = &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: m.timeout("native")}
	default:
		m.timeoutWithoutScheduler()
	}
	m.note(at+".queue", Moved, inRuntime("spec.podGroupPolicy."+string(scheduler)+".queue"), fmt.Sprintf("the runtime sets %s, which has queues", scheduler))
	if *policy != (v2alpha1.PodGroupPolicy{}) {
		m.runtime.Spec.PodGroupPolicy = policy
	}
}

// scheduler returns the gang scheduler, if it is known.
func (m *migration) scheduler() job.Scheduler {
	if m.before.Gang.Queue != "" && !gang.HasQueues(m.options.Scheduler) {
		return job.Volcano
	}
	// Kueue does not pass on the fields that native gangs need.
	if m.options.Scheduler == job.Native && m.before.Queue != "" {
		return ""
	}
	return m.options.Scheduler
}

const timeoutPath = "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds"

// timeout converts the scheduling timeout, within the limits of a runtime.
func (m *migration) timeout(scheduler string) *int32 {
	limits := &m.options.Config.Limits
	to := inRuntime("spec.podGroupPolicy." + scheduler + ".scheduleTimeoutSeconds")
	least, most := limits.MinScheduleTimeoutSeconds, limits.MaxScheduleTimeoutSeconds
	// The model has already raised a timeout that is too short.
	written := int32(0)
	if policy := m.old.Spec.RunPolicy.SchedulingPolicy; policy != nil && policy.ScheduleTimeoutSeconds != nil {
		written = *policy.ScheduleTimeoutSeconds
	}
	switch seconds := written; {
	case seconds == 0:
		m.note(timeoutPath, Dropped, "", "is 0, which is no limit")
		m.add(Entry{Path: timeoutPath, Outcome: Default, To: to,
			Why: fmt.Sprintf("an MPIJob without it waits forever to be scheduled; a TrainJob fails after %d s, the maximum", most)})
		return new(most)
	case seconds < least || seconds > most:
		nearest := min(max(seconds, least), most)
		m.rewrite(timeoutPath, Moved, to, fmt.Sprintf("is %d, the nearest allowed value", nearest))
		return &nearest
	default:
		m.note(timeoutPath, Moved, to, "")
		return &seconds
	}
}

// timeoutWithoutScheduler reports the timeout for a runtime without a gang scheduler,
// which cannot have one.
func (m *migration) timeoutWithoutScheduler() {
	usual := m.rules.Defaults.ScheduleTimeoutSeconds
	switch seconds := m.before.Gang.TimeoutSeconds; seconds {
	case 0:
		m.note(timeoutPath, Dropped, "", "is 0, which is no limit")
		m.add(Entry{Path: timeoutPath, Outcome: Default,
			Why: fmt.Sprintf("an MPIJob without it waits forever to be scheduled; a TrainJob fails after %d s. For a longer timeout, set the cluster's gang scheduler with --scheduler", usual)})
	case usual:
		m.note(timeoutPath, Dropped, "", "is the default of a TrainJob")
	default:
		m.note(timeoutPath, Review, "", fmt.Sprintf(
			"a TrainJob waits for %d s unless its runtime has a gang scheduler; set the cluster's with --scheduler to keep the timeout", usual))
	}
}
