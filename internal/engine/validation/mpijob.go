// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// mpiJobCheck validates a new MPIJob.
type mpiJobCheck struct {
	*Findings
	rules  *Rules
	mpiJob *v2beta1.MPIJob
	job    *job.Job
	in     *ClusterFacts
	spec   *field.Path
}

// CreateMPIJob validates a new MPIJob.
func (r *Rules) CreateMPIJob(mpiJob *v2beta1.MPIJob, in *ClusterFacts) *Findings {
	check := &mpiJobCheck{
		Findings: &Findings{},
		rules:    r,
		mpiJob:   mpiJob,
		job:      job.FromMPIJob(mpiJob, r.Defaults),
		in:       in,
		spec:     field.NewPath("spec"),
	}
	if r.size(check.Findings, in.Bytes); len(check.Errors) > 0 {
		return check.Findings
	}
	check.deprecation()
	check.name()
	check.replicas()
	check.slots()
	check.runPolicy()
	check.schedulingPolicy()
	check.containers()
	check.network()
	check.sshDirectory()
	check.multiKueue()
	check.metadata()
	foreignKeys(check.Findings, in, job.KindMPIJob, mpiJob.Name, MPIJobReferences(mpiJob))
	// mpiImplementation and networkPolicy.template are enums of the schema.
	if check.mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher] != nil {
		check.place()
	}
	return check.Findings
}

func (mc *mpiJobCheck) deprecation() {
	switch mc.rules.MPIJobDeprecation {
	case config.DeprecationWarn:
		mc.warn(field.NewPath("apiVersion"), "MPIJob is deprecated: use a TrainJob of kubeflow.org/v2alpha1 instead")
	case config.DeprecationRefuse:
		mc.refuse(field.Forbidden(field.NewPath("apiVersion"), "this cluster does not accept new MPIJobs: use a TrainJob of kubeflow.org/v2alpha1 instead"))
	}
}

func (mc *mpiJobCheck) name() {
	nameFits(mc.Findings, mc.mpiJob.Name, job.KindMPIJob.LongestName(mc.mpiJob.Name, mc.job.Worker.Replicas))
}

func (mc *mpiJobCheck) role(role v2beta1.MPIReplicaType) *field.Path {
	return mc.spec.Child("mpiReplicaSpecs", string(role))
}

func (mc *mpiJobCheck) replicas() {
	specs := mc.mpiJob.Spec.MPIReplicaSpecs
	if len(specs) == 0 {
		mc.refuse(field.Required(mc.spec.Child("mpiReplicaSpecs"), "mpiReplicaSpecs is required: add a Launcher and Workers"))
		return
	}
	for _, role := range slices.Sorted(maps.Keys(specs)) {
		if role != v2beta1.MPIReplicaTypeLauncher && role != v2beta1.MPIReplicaTypeWorker {
			mc.refuse(field.NotSupported(mc.spec.Child("mpiReplicaSpecs"), role,
				[]v2beta1.MPIReplicaType{v2beta1.MPIReplicaTypeLauncher, v2beta1.MPIReplicaTypeWorker}))
		}
	}
	launcher := mc.role(v2beta1.MPIReplicaTypeLauncher)
	if specs[v2beta1.MPIReplicaTypeLauncher] == nil {
		mc.refuse(field.Required(launcher, "Launcher replica spec is required"))
	} else if replicas := mc.job.Launcher.Replicas; replicas != 1 {
		mc.refuse(field.Invalid(launcher.Child("replicas"), replicas, fmt.Sprintf("Launcher replicas must be exactly 1, got %d", replicas)))
	}
	mc.workers()
}

func (mc *mpiJobCheck) workers() {
	limits := &mc.rules.Limits
	least, at := mc.minWorkers(), mc.role(v2beta1.MPIReplicaTypeWorker)
	if mc.mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] == nil {
		if least > 0 {
			mc.refuse(field.Required(at, "Worker replica spec is required"))
		}
		return
	}
	least = max(least, 1)
	if replicas := mc.job.Worker.Replicas; replicas < least || replicas > limits.MaxWorkers {
		mc.refuse(field.Invalid(at.Child("replicas"), replicas, fmt.Sprintf("Worker replicas must be between %d and %d", least, limits.MaxWorkers)))
	}
	// The limit is for MPIJobs; TrainJobs have the constraints of their runtimes.
	if gpus := job.GPUs(job.Requests(&mc.job.Worker.Template.Spec)); gpus.CmpInt64(int64(limits.MaxGPUs)) > 0 {
		mc.refuse(field.Invalid(at.Child("template", "spec", "containers"), gpus.String(), fmt.Sprintf("a worker must have at most %d GPUs", limits.MaxGPUs)))
	}
}

// minWorkers is one less if the launcher runs ranks, because it counts as a worker.
func (mc *mpiJobCheck) minWorkers() int32 {
	if mc.job.LauncherRunsRanks {
		return max(mc.rules.Limits.MinWorkers-1, 0)
	}
	return mc.rules.Limits.MinWorkers
}

func (mc *mpiJobCheck) slots() {
	between(mc.Findings, mc.spec.Child("slotsPerWorker"), "slotsPerWorker", mc.mpiJob.Spec.SlotsPerWorker, 1, mc.rules.Limits.MaxSlots.MPIJob)
}

func (mc *mpiJobCheck) runPolicy() {
	policy, at := &mc.mpiJob.Spec.RunPolicy, mc.spec.Child("runPolicy")
	atLeast(mc.Findings, at.Child("ttlSecondsAfterFinished"), policy.TTLSecondsAfterFinished, 0)
	deadline(mc.Findings, at.Child("activeDeadlineSeconds"), policy.ActiveDeadlineSeconds, 0)
	atLeast(mc.Findings, at.Child("backoffLimit"), policy.BackoffLimit, 0)
	hang(mc.Findings, at.Child("hang"), policy.Hang)
	progressPattern(mc.Findings, mc.spec.Child("progressPattern"), mc.mpiJob.Spec.ProgressPattern)
	if own := mc.mpiJob.Spec.CleanPodPolicy; own != nil && policy.CleanPodPolicy != nil && *own != *policy.CleanPodPolicy {
		mc.refuse(field.Invalid(at.Child("cleanPodPolicy"), *policy.CleanPodPolicy,
			fmt.Sprintf("differs from spec.cleanPodPolicy, which is %s; set one of them", *own)))
	}
	managedBy(mc.Findings, at.Child("managedBy"), policy.ManagedBy, v2beta1.ManagedByMPIOperator, training.ManagedByMultiKueue, training.ManagedByTrireme)
	for _, role := range []v2beta1.MPIReplicaType{v2beta1.MPIReplicaTypeLauncher, v2beta1.MPIReplicaTypeWorker} {
		replica := mc.mpiJob.Spec.MPIReplicaSpecs[role]
		if replica != nil && (replica.RestartPolicy == v2beta1.RestartPolicyAlways || replica.RestartPolicy == v2beta1.RestartPolicyExitCode) {
			mc.refuse(field.NotSupported(mc.role(role).Child("restartPolicy"), replica.RestartPolicy,
				[]v2beta1.RestartPolicy{v2beta1.RestartPolicyNever, v2beta1.RestartPolicyOnFailure}))
		}
	}
}

// managedBy only accepts known controllers, because no other would run the job.
func managedBy(findings *Findings, at *field.Path, value *string, known ...string) {
	if value != nil && !slices.Contains(known, *value) {
		findings.refuse(field.NotSupported(at, *value, known))
	}
}

func (mc *mpiJobCheck) schedulingPolicy() {
	policy, at := mc.mpiJob.Spec.RunPolicy.SchedulingPolicy, mc.spec.Child("runPolicy", "schedulingPolicy")
	if policy == nil {
		return
	}
	queueName(mc.Findings, at.Child("queue"), policy.Queue)
	atLeast(mc.Findings, at.Child("scheduleTimeoutSeconds"), policy.ScheduleTimeoutSeconds, 0)
	if seconds := policy.ScheduleTimeoutSeconds; seconds != nil && *seconds > 0 && *seconds < mc.rules.Limits.MinScheduleTimeoutSeconds {
		mc.warn(at.Child("scheduleTimeoutSeconds"), "%d is raised to %d, the minimum of this cluster", *seconds, mc.rules.Limits.MinScheduleTimeoutSeconds)
	}
	if policy.MinResources != nil {
		resources := podCheck{rules: mc.rules, findings: mc.Findings}
		for _, name := range job.ResourceNames(*policy.MinResources) {
			resources.quantity(at.Child("minResources").Key(string(name)), name, (*policy.MinResources)[name])
		}
		if len(*policy.MinResources) > 0 && !mc.namesGangScheduler() {
			mc.warn(at.Child("minResources"), "is only used by Volcano and the coscheduling plugin; it has no effect with another scheduler")
		}
	}
	if pods := max(mc.job.Pods(), 1); policy.MinAvailable != nil {
		between(mc.Findings, at.Child("minAvailable"), "minAvailable", policy.MinAvailable, 1, pods)
		if *policy.MinAvailable < pods {
			mc.warn(at.Child("minAvailable"), "%d of %d pods are scheduled together, but the job only starts once all of them are ready; remove it to schedule all pods together",
				*policy.MinAvailable, pods)
		}
	}
}

// namesGangScheduler reports whether the job itself requests a gang scheduler, by its
// name or by a queue, which only Volcano has.
func (mc *mpiJobCheck) namesGangScheduler() bool {
	if mc.job.Pods() <= 1 {
		return false
	}
	scheduler := mc.job.Worker.Template.Spec.SchedulerName
	return mc.job.Gang.Queue != "" || scheduler != "" && scheduler != corev1.DefaultSchedulerName
}

func (mc *mpiJobCheck) containers() {
	pods := podCheck{rules: mc.rules, findings: mc.Findings}
	for _, role := range []v2beta1.MPIReplicaType{v2beta1.MPIReplicaTypeLauncher, v2beta1.MPIReplicaTypeWorker} {
		replica := mc.mpiJob.Spec.MPIReplicaSpecs[role]
		if replica == nil {
			continue
		}
		at := mc.role(role).Child("template")
		pods.taken, pods.agentListens = mc.taken(role), mc.agentListens(role)
		pods.template(at, &replica.Template)
		istio(mc.Findings, at.Child("metadata"), &metav1.ObjectMeta{}, &replica.Template.ObjectMeta)
	}
	launcher := mc.job.Launcher.Template.Spec.Containers
	if len(launcher) > 0 && len(launcher[0].Command) == 0 && len(launcher[0].Args) == 0 {
		mc.warn(mc.role(v2beta1.MPIReplicaTypeLauncher).Child("template", "spec", "containers").Index(0),
			"has neither command nor args, so the entrypoint of its image must start MPI")
	}
}

// taken returns the directories of a role that the operator needs.
func (mc *mpiJobCheck) taken(role v2beta1.MPIReplicaType) map[string]mountOwner {
	directories := []string{job.AgentDirectory, job.KeyDirectory}
	if role == v2beta1.MPIReplicaTypeLauncher {
		directories = append(directories, job.HostfileDirectory, job.ClockDirectory)
	}
	if !mc.job.WorkersRunAgent() {
		directories = append(directories, mc.job.SSHDirectory)
	}
	return byOperator(directories...)
}

// agentListens reports whether the agent listens in the pods of a role.
func (mc *mpiJobCheck) agentListens(role v2beta1.MPIReplicaType) bool {
	if role == v2beta1.MPIReplicaTypeWorker {
		return mc.job.WorkersRunAgent()
	}
	launcher := mc.job.Launcher.Template.Spec.Containers
	return len(launcher) > 0 && len(launcher[0].Command) > 0
}

func (mc *mpiJobCheck) network() {
	hostNetwork := mc.job.Launcher.Template.Spec.HostNetwork || mc.job.Worker.Template.Spec.HostNetwork
	if mc.job.NetworkPolicy != "" && hostNetwork {
		mc.warn(mc.spec.Child("networkPolicy"), "has no effect on pods with hostNetwork")
	}
}

// notForKeys are directories that pods use for something else.
var notForKeys = []string{"/", "/tmp", "/dev/shm", job.HostfileDirectory, job.AgentDirectory, job.KeyDirectory, job.ClockDirectory}

func (mc *mpiJobCheck) sshDirectory() {
	if directory := mc.mpiJob.Spec.SSHAuthMountPath; directory != "" && !path.IsAbs(directory) {
		mc.refuse(field.Invalid(mc.spec.Child("sshAuthMountPath"), directory, "must be an absolute path"))
	} else if slices.Contains(notForKeys, path.Clean(directory)) {
		mc.refuse(field.Invalid(mc.spec.Child("sshAuthMountPath"), directory, "must be a directory that is used for nothing else"))
	} else if directory != "" && mc.job.WorkersRunAgent() {
		mc.warn(mc.spec.Child("sshAuthMountPath"), "has no effect: the workers have no command, so the operator's agent accepts connections instead of an SSH server")
	}
}

// multiKueue refuses fields that MultiKueue drops: it copies a job to another cluster
// with mpi-operator's type, which does not have them.
func (mc *mpiJobCheck) multiKueue() {
	if mc.job.ManagedBy != training.ManagedByMultiKueue {
		return
	}
	if mc.mpiJob.Spec.NetworkPolicy != nil {
		mc.refuse(field.Forbidden(mc.spec.Child("networkPolicy"), "MultiKueue drops this field, so the job would run without a NetworkPolicy; create the NetworkPolicy yourself"))
	}
	if mc.mpiJob.Spec.CleanPodPolicy != nil && mc.mpiJob.Spec.RunPolicy.CleanPodPolicy == nil {
		mc.warn(mc.spec.Child("cleanPodPolicy"), "MultiKueue drops this field; use runPolicy.cleanPodPolicy")
	}
	if mc.mpiJob.Spec.RequireAllHosts != nil {
		mc.warn(mc.spec.Child("requireAllHosts"), "MultiKueue drops this field")
	}
}

func (mc *mpiJobCheck) metadata() {
	labels(mc.Findings, nil, &mc.mpiJob.ObjectMeta, job.KindMPIJob)
}

func (mc *mpiJobCheck) place() {
	role := func(kind v2beta1.MPIReplicaType, name string, role job.Role) pods {
		at := mc.role(kind).Child("template")
		return pods{role: name, Role: role, at: at,
			resources:     at.Child("spec", "containers").Index(0).Child("resources"),
			priorityClass: at.Child("spec", "priorityClassName")}
	}
	placement := &placeCheck{
		rules:         mc.rules,
		findings:      mc.Findings,
		job:           mc.job,
		in:            mc.in,
		launcher:      role(v2beta1.MPIReplicaTypeLauncher, "launcher", mc.job.Launcher),
		worker:        role(v2beta1.MPIReplicaTypeWorker, "worker", mc.job.Worker),
		name:          metadata.Child("name"),
		workers:       mc.role(v2beta1.MPIReplicaTypeWorker).Child("replicas"),
		slots:         mc.spec.Child("slotsPerWorker"),
		priorityClass: mc.spec.Child("runPolicy", "schedulingPolicy", "priorityClass"),
		minWorkers:    int64(mc.minWorkers()),
		quotaHeadline: func(string, string) string { return "Error: Quota exceeded" },
	}
	placement.check()
}
