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
	in     *Surroundings
	spec   *field.Path
}

// CreateMPIJob validates a new MPIJob.
func (rules *Rules) CreateMPIJob(mpiJob *v2beta1.MPIJob, in *Surroundings) *Findings {
	check := &mpiJobCheck{
		Findings: &Findings{},
		rules:    rules,
		mpiJob:   mpiJob,
		job:      job.FromMPIJob(mpiJob, rules.Defaults),
		in:       in,
		spec:     field.NewPath("spec"),
	}
	if rules.size(check.Findings, in.Bytes); len(check.Errors) > 0 {
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

func (check *mpiJobCheck) deprecation() {
	switch check.rules.MPIJobDeprecation {
	case config.DeprecationWarn:
		check.warn(field.NewPath("apiVersion"), "MPIJob is deprecated: use a TrainJob of kubeflow.org/v2alpha1 instead")
	case config.DeprecationRefuse:
		check.refuse(field.Forbidden(field.NewPath("apiVersion"), "this cluster does not accept new MPIJobs: use a TrainJob of kubeflow.org/v2alpha1 instead"))
	}
}

func (check *mpiJobCheck) name() {
	nameFits(check.Findings, check.mpiJob.Name, job.KindMPIJob.LongestName(check.mpiJob.Name, check.job.Worker.Replicas))
}

func (check *mpiJobCheck) role(role v2beta1.MPIReplicaType) *field.Path {
	return check.spec.Child("mpiReplicaSpecs", string(role))
}

func (check *mpiJobCheck) replicas() {
	specs := check.mpiJob.Spec.MPIReplicaSpecs
	if len(specs) == 0 {
		check.refuse(field.Required(check.spec.Child("mpiReplicaSpecs"), "mpiReplicaSpecs is required: describe a Launcher and Workers"))
		return
	}
	for _, role := range slices.Sorted(maps.Keys(specs)) {
		if role != v2beta1.MPIReplicaTypeLauncher && role != v2beta1.MPIReplicaTypeWorker {
			check.refuse(field.NotSupported(check.spec.Child("mpiReplicaSpecs"), role,
				[]v2beta1.MPIReplicaType{v2beta1.MPIReplicaTypeLauncher, v2beta1.MPIReplicaTypeWorker}))
		}
	}
	launcher := check.role(v2beta1.MPIReplicaTypeLauncher)
	if specs[v2beta1.MPIReplicaTypeLauncher] == nil {
		check.refuse(field.Required(launcher, "Launcher replica spec is required"))
	} else if replicas := check.job.Launcher.Replicas; replicas != 1 {
		check.refuse(field.Invalid(launcher.Child("replicas"), replicas, fmt.Sprintf("Launcher replicas must be exactly 1, got %d", replicas)))
	}
	check.workers()
}

func (check *mpiJobCheck) workers() {
	limits := &check.rules.Limits
	least, at := check.minWorkers(), check.role(v2beta1.MPIReplicaTypeWorker)
	if check.mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] == nil {
		if least > 0 {
			check.refuse(field.Required(at, "Worker replica spec is required"))
		}
		return
	}
	least = max(least, 1)
	if replicas := check.job.Worker.Replicas; replicas < least || replicas > limits.MaxWorkers {
		check.refuse(field.Invalid(at.Child("replicas"), replicas, fmt.Sprintf("Worker replicas must be between %d and %d", least, limits.MaxWorkers)))
	}
	// The limit is for MPIJobs; TrainJobs have the constraints of their runtimes.
	if gpus := job.GPUs(job.Requests(&check.job.Worker.Template.Spec)); gpus.CmpInt64(int64(limits.MaxGPUs)) > 0 {
		check.refuse(field.Invalid(at.Child("template", "spec", "containers"), gpus.String(), fmt.Sprintf("a worker must have at most %d GPUs", limits.MaxGPUs)))
	}
}

// minWorkers is one less if the launcher runs ranks, because it counts as a worker.
func (check *mpiJobCheck) minWorkers() int32 {
	if check.job.LauncherRunsRanks {
		return max(check.rules.Limits.MinWorkers-1, 0)
	}
	return check.rules.Limits.MinWorkers
}

func (check *mpiJobCheck) slots() {
	between(check.Findings, check.spec.Child("slotsPerWorker"), "slotsPerWorker", check.mpiJob.Spec.SlotsPerWorker, 1, check.rules.Limits.MaxSlots.MPIJob)
}

func (check *mpiJobCheck) runPolicy() {
	policy, at := &check.mpiJob.Spec.RunPolicy, check.spec.Child("runPolicy")
	atLeast(check.Findings, at.Child("ttlSecondsAfterFinished"), policy.TTLSecondsAfterFinished, 0)
	deadline(check.Findings, at.Child("activeDeadlineSeconds"), policy.ActiveDeadlineSeconds, 0)
	atLeast(check.Findings, at.Child("backoffLimit"), policy.BackoffLimit, 0)
	if own := check.mpiJob.Spec.CleanPodPolicy; own != nil && policy.CleanPodPolicy != nil && *own != *policy.CleanPodPolicy {
		check.refuse(field.Invalid(at.Child("cleanPodPolicy"), *policy.CleanPodPolicy,
			fmt.Sprintf("differs from spec.cleanPodPolicy, which is %s; set one of them", *own)))
	}
	managedBy(check.Findings, at.Child("managedBy"), policy.ManagedBy, v2beta1.ManagedByMPIOperator, training.ManagedByMultiKueue)
	for _, role := range []v2beta1.MPIReplicaType{v2beta1.MPIReplicaTypeLauncher, v2beta1.MPIReplicaTypeWorker} {
		replica := check.mpiJob.Spec.MPIReplicaSpecs[role]
		if replica != nil && (replica.RestartPolicy == v2beta1.RestartPolicyAlways || replica.RestartPolicy == v2beta1.RestartPolicyExitCode) {
			check.refuse(field.NotSupported(check.role(role).Child("restartPolicy"), replica.RestartPolicy,
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

func (check *mpiJobCheck) schedulingPolicy() {
	policy, at := check.mpiJob.Spec.RunPolicy.SchedulingPolicy, check.spec.Child("runPolicy", "schedulingPolicy")
	if policy == nil {
		return
	}
	queueName(check.Findings, at.Child("queue"), policy.Queue)
	atLeast(check.Findings, at.Child("scheduleTimeoutSeconds"), policy.ScheduleTimeoutSeconds, 0)
	if seconds := policy.ScheduleTimeoutSeconds; seconds != nil && *seconds > 0 && *seconds < check.rules.Limits.MinScheduleTimeoutSeconds {
		check.warn(at.Child("scheduleTimeoutSeconds"), "%d is raised to %d, the minimum of this cluster", *seconds, check.rules.Limits.MinScheduleTimeoutSeconds)
	}
	if policy.MinResources != nil {
		resources := podCheck{rules: check.rules, findings: check.Findings}
		for _, name := range job.ResourceNames(*policy.MinResources) {
			resources.quantity(at.Child("minResources").Key(string(name)), name, (*policy.MinResources)[name])
		}
		if len(*policy.MinResources) > 0 && !check.namesGangScheduler() {
			check.warn(at.Child("minResources"), "is only used by Volcano and the coscheduling plugin; it has no effect with another scheduler")
		}
	}
	if pods := max(check.job.Pods(), 1); policy.MinAvailable != nil {
		between(check.Findings, at.Child("minAvailable"), "minAvailable", policy.MinAvailable, 1, pods)
		if *policy.MinAvailable < pods {
			check.warn(at.Child("minAvailable"), "%d of %d pods are scheduled together, but the job only starts once all of them are ready; remove it to schedule all pods together",
				*policy.MinAvailable, pods)
		}
	}
}

// namesGangScheduler reports whether the job itself requests a gang scheduler, by its
// name or by a queue, which only Volcano has.
func (check *mpiJobCheck) namesGangScheduler() bool {
	if check.job.Pods() <= 1 {
		return false
	}
	scheduler := check.job.Worker.Template.Spec.SchedulerName
	return check.job.Gang.Queue != "" || scheduler != "" && scheduler != corev1.DefaultSchedulerName
}

func (check *mpiJobCheck) containers() {
	pods := podCheck{rules: check.rules, findings: check.Findings}
	for _, role := range []v2beta1.MPIReplicaType{v2beta1.MPIReplicaTypeLauncher, v2beta1.MPIReplicaTypeWorker} {
		replica := check.mpiJob.Spec.MPIReplicaSpecs[role]
		if replica == nil {
			continue
		}
		at := check.role(role).Child("template")
		pods.taken, pods.agentListens = check.taken(role), check.agentListens(role)
		pods.template(at, &replica.Template)
		istio(check.Findings, at.Child("metadata"), &metav1.ObjectMeta{}, &replica.Template.ObjectMeta)
	}
	launcher := check.job.Launcher.Template.Spec.Containers
	if len(launcher) > 0 && len(launcher[0].Command) == 0 && len(launcher[0].Args) == 0 {
		check.warn(check.role(v2beta1.MPIReplicaTypeLauncher).Child("template", "spec", "containers").Index(0),
			"has neither command nor args, so the entrypoint of its image must start MPI")
	}
}

// taken returns the directories of a role that the operator needs.
func (check *mpiJobCheck) taken(role v2beta1.MPIReplicaType) map[string]mountOwner {
	directories := []string{job.AgentDirectory, job.KeyDirectory}
	if role == v2beta1.MPIReplicaTypeLauncher {
		directories = append(directories, job.HostfileDirectory, job.ClockDirectory)
	}
	if !check.job.WorkersRunAgent() {
		directories = append(directories, check.job.SSHDirectory)
	}
	return byOperator(directories...)
}

// agentListens reports whether the agent listens in the pods of a role.
func (check *mpiJobCheck) agentListens(role v2beta1.MPIReplicaType) bool {
	if role == v2beta1.MPIReplicaTypeWorker {
		return check.job.WorkersRunAgent()
	}
	launcher := check.job.Launcher.Template.Spec.Containers
	return len(launcher) > 0 && len(launcher[0].Command) > 0
}

func (check *mpiJobCheck) network() {
	hostNetwork := check.job.Launcher.Template.Spec.HostNetwork || check.job.Worker.Template.Spec.HostNetwork
	if check.job.NetworkPolicy != "" && hostNetwork {
		check.warn(check.spec.Child("networkPolicy"), "has no effect on pods with hostNetwork")
	}
}

// notForKeys are directories that pods use for something else.
var notForKeys = []string{"/", "/tmp", "/dev/shm", job.HostfileDirectory, job.AgentDirectory, job.KeyDirectory, job.ClockDirectory}

func (check *mpiJobCheck) sshDirectory() {
	if directory := check.mpiJob.Spec.SSHAuthMountPath; directory != "" && !path.IsAbs(directory) {
		check.refuse(field.Invalid(check.spec.Child("sshAuthMountPath"), directory, "must be an absolute path"))
	} else if slices.Contains(notForKeys, path.Clean(directory)) {
		check.refuse(field.Invalid(check.spec.Child("sshAuthMountPath"), directory, "must be a directory that is used for nothing else"))
	} else if directory != "" && check.job.WorkersRunAgent() {
		check.warn(check.spec.Child("sshAuthMountPath"), "has no effect: the workers have no command, so the operator's agent accepts connections instead of an SSH server")
	}
}

// multiKueue refuses fields that MultiKueue drops: it copies a job to another cluster
// with mpi-operator's type, which does not have them.
func (check *mpiJobCheck) multiKueue() {
	if check.job.ManagedBy != training.ManagedByMultiKueue {
		return
	}
	if check.mpiJob.Spec.NetworkPolicy != nil {
		check.refuse(field.Forbidden(check.spec.Child("networkPolicy"), "MultiKueue drops this field, so the job would run without a NetworkPolicy; create the NetworkPolicy yourself"))
	}
	if check.mpiJob.Spec.CleanPodPolicy != nil && check.mpiJob.Spec.RunPolicy.CleanPodPolicy == nil {
		check.warn(check.spec.Child("cleanPodPolicy"), "MultiKueue drops this field; use runPolicy.cleanPodPolicy")
	}
	if check.mpiJob.Spec.RequireAllHosts != nil {
		check.warn(check.spec.Child("requireAllHosts"), "MultiKueue drops this field")
	}
}

func (check *mpiJobCheck) metadata() {
	labels(check.Findings, nil, &check.mpiJob.ObjectMeta, job.KindMPIJob)
}

func (check *mpiJobCheck) place() {
	role := func(kind v2beta1.MPIReplicaType, name string, role job.Role) pods {
		at := check.role(kind).Child("template")
		return pods{role: name, Role: role, at: at,
			resources:     at.Child("spec", "containers").Index(0).Child("resources"),
			priorityClass: at.Child("spec", "priorityClassName")}
	}
	placement := &placeCheck{
		rules:         check.rules,
		findings:      check.Findings,
		job:           check.job,
		in:            check.in,
		launcher:      role(v2beta1.MPIReplicaTypeLauncher, "launcher", check.job.Launcher),
		worker:        role(v2beta1.MPIReplicaTypeWorker, "worker", check.job.Worker),
		name:          metadata.Child("name"),
		workers:       check.role(v2beta1.MPIReplicaTypeWorker).Child("replicas"),
		slots:         check.spec.Child("slotsPerWorker"),
		priorityClass: check.spec.Child("runPolicy", "schedulingPolicy", "priorityClass"),
		minWorkers:    int64(check.minWorkers()),
		quotaHeadline: func(string, string) string { return "Error: Quota exceeded" },
	}
	placement.check()
}
