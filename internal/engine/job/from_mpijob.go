// SPDX-License-Identifier: Apache-2.0

package job

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// mpiJobBackoffLimit is the default of a batch Job, which an MPIJob's launcher is.
const mpiJobBackoffLimit = 6

// FromMPIJob is the job that an MPIJob describes. It applies all defaults of MPIJob. The
// schema has none, so that objects that another operator stored are not changed.
func FromMPIJob(mpiJob *v2beta1.MPIJob, defaults Defaults) *Job {
	spec := &mpiJob.Spec
	job := &Job{
		Kind:              KindMPIJob,
		Namespace:         mpiJob.Namespace,
		Name:              mpiJob.Name,
		UID:               mpiJob.UID,
		Suspended:         orElse(spec.RunPolicy.Suspend, false),
		Queue:             mpiJob.Labels[training.LabelQueue],
		QueueLabels:       queueLabels(mpiJob.Labels),
		TagOutput:         mpiJob.Annotations[training.AnnotationTagOutput] == "true",
		MPI:               mpiOf(spec.MPIImplementation),
		Slots:             orElse(spec.SlotsPerWorker, 1),
		Launcher:          mpiJobRole(spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher], v2beta1.RestartPolicyOnFailure),
		Worker:            mpiJobRole(spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker], v2beta1.RestartPolicyNever),
		LauncherRunsRanks: orElse(spec.RunLauncherAsWorker, false),
		LauncherWaits:     spec.LauncherCreationPolicy == v2beta1.LauncherCreationPolicyWaitForWorkersReady,
		RequireAllHosts:   orElse(spec.RequireAllHosts, false),
		Lifetime: Lifetime{
			CleanPodPolicy:          mpiJobCleanPodPolicy(spec),
			BackoffLimit:            orElse(spec.RunPolicy.BackoffLimit, mpiJobBackoffLimit),
			ActiveDeadlineSeconds:   spec.RunPolicy.ActiveDeadlineSeconds,
			TTLSecondsAfterFinished: spec.RunPolicy.TTLSecondsAfterFinished,
		},
	}
	job.Hang, job.ProgressPattern = newHang(defaults.Hang, spec.RunPolicy.Hang), spec.ProgressPattern
	if managedBy := orElse(spec.RunPolicy.ManagedBy, ""); managedBy != v2beta1.ManagedByMPIOperator && managedBy != training.ManagedByTrireme {
		job.ManagedBy = managedBy
	}
	job.NetworkPolicy = defaults.NetworkPolicy
	if spec.NetworkPolicy != nil {
		job.NetworkPolicy = spec.NetworkPolicy.Template
	}
	job.Gang = mpiJobGang(spec.RunPolicy.SchedulingPolicy, job.Pods(), defaults)
	setPriorityClass(job)
	// An image with its own sshd was built for a certain user.
	if job.WorkersRunAgent() {
		restrictByDefault(&job.Launcher.Template.Spec, defaults.RunAsUser)
		restrictByDefault(&job.Worker.Template.Spec, defaults.RunAsUser)
	}
	if job.SSHDirectory = spec.SSHAuthMountPath; job.SSHDirectory == "" {
		job.SSHDirectory = sshDirectory(&job.Worker.Template.Spec)
	}
	return job
}

func mpiOf(implementation v2beta1.MPIImplementation) MPI {
	switch implementation {
	case "":
		return OpenMPI
	case v2beta1.MPIImplementationIntel:
		return IntelMPI
	default:
		return MPI(implementation)
	}
}

func mpiJobRole(replica *v2beta1.ReplicaSpec, restartPolicy v2beta1.RestartPolicy) Role {
	if replica == nil {
		return Role{}
	}
	role := newRole(replica.Replicas, &replica.Template)
	if replica.RestartPolicy != "" {
		restartPolicy = replica.RestartPolicy
	}
	role.Template.Spec.RestartPolicy = corev1.RestartPolicy(restartPolicy)
	return role
}

func mpiJobCleanPodPolicy(spec *v2beta1.MPIJobSpec) training.CleanPodPolicy {
	return orElse(spec.CleanPodPolicy, orElse(spec.RunPolicy.CleanPodPolicy, training.CleanPodPolicyRunning))
}

func mpiJobGang(policy *v2beta1.SchedulingPolicy, pods int32, defaults Defaults) Gang {
	if policy == nil {
		policy = &v2beta1.SchedulingPolicy{}
	}
	gang := Gang{
		MinMember:      orElse(policy.MinAvailable, pods),
		TimeoutSeconds: orElse(policy.ScheduleTimeoutSeconds, defaults.MPIJobScheduleTimeoutSeconds),
		PriorityClass:  policy.PriorityClass,
		Queue:          policy.Queue,
	}
	if gang.TimeoutSeconds > 0 {
		gang.TimeoutSeconds = max(gang.TimeoutSeconds, defaults.MinScheduleTimeoutSeconds)
	}
	if policy.MinResources != nil {
		gang.MinResources = policy.MinResources.DeepCopy()
	}
	return gang
}

func orElse[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}
