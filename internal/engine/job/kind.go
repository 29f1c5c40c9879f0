// SPDX-License-Identifier: Apache-2.0

package job

import (
	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// Kind is the API that a job was written for.
type Kind string

const (
	KindTrainJob Kind = "TrainJob"
	KindMPIJob   Kind = "MPIJob"
	// KindJobSet is a JobSet that Kubeflow's Trainer has created for a TrainJob of
	// trainer.kubeflow.org.
	KindJobSet Kind = "JobSet"
)

// Traits are the differences between the kinds after the model is built. They are data,
// so that no later code depends on the kind.
type Traits struct {
	// Type is the value of the label training.LabelJobType.
	Type string
	// APIVersion is the group and version of the job object.
	APIVersion string
	// Workload is the object that represents the job's pods for users, Kueue and kubectl
	// wait.
	Workload Workload
	// IsWorkload: the job is its own workload, which another controller creates.
	IsWorkload bool
	// WorkloadOwnsWorkers: the workload controls every pod. Otherwise it controls
	// the launcher, and the job controls its workers.
	WorkloadOwnsWorkers bool
	// RestartsAsWhole: a restart replaces every pod. Otherwise it replaces only the
	// launcher, and a failed worker fails the job.
	RestartsAsWhole bool
	// NumbersFromLauncher: the launcher is replica 0 if it runs ranks, and workers count
	// from 1. mpi-operator and Kueue number the replicas of MPIJobs like this.
	NumbersFromLauncher bool
	// HasRuntime: the job was built from a runtime.
	HasRuntime bool
	// GaugeSuffix is the suffix of the names of gauges. It is _total for MPIJobs, because
	// existing dashboards use these names.
	GaugeSuffix string
	// PodLabels are set on every pod.
	PodLabels map[string]string
	// Objects are the objects of this kind of job that a ResourceQuota counts, in addition
	// to those of every job.
	Objects map[corev1.ResourceName]int64

	// Parts of names; see package plan.
	SecretSuffix, ServiceSuffix, WorkloadSuffix, LauncherHostSuffix, WorkerHostInfix string
	// PodNameSuffix is added to a host name when its length is checked: JobSet's webhook
	// counts the suffix that its own controller would add.
	PodNameSuffix                            string
	NetworkPolicyPrefix, NetworkPolicySuffix string
}

// Workload is a kind of object that represents the pods of a job.
type Workload string

const (
	// WorkloadJobSet is a JobSet with the replicated jobs launcher and worker.
	WorkloadJobSet Workload = "JobSet"
	// WorkloadBatchJob is a batch Job of the launcher.
	WorkloadBatchJob Workload = "Job"
)

var traits = map[Kind]Traits{
	KindTrainJob: {
		Type: training.JobTypeTrainJob, APIVersion: v2alpha1.GroupVersion.String(),
		Workload: WorkloadJobSet, WorkloadOwnsWorkers: true, RestartsAsWhole: true, HasRuntime: true,
		Objects:      map[corev1.ResourceName]int64{"count/jobsets.jobset.x-k8s.io": 1},
		SecretSuffix: "-ssh", ServiceSuffix: "-worker", LauncherHostSuffix: "-launcher-0-0", WorkerHostInfix: "-worker-0-", PodNameSuffix: "-xxxxx",
		NetworkPolicyPrefix: "trainjob-", NetworkPolicySuffix: "-network",
	},
	KindMPIJob: {
		Type: training.JobTypeMPIJob, APIVersion: v2beta1.GroupVersion.String(),
		Workload: WorkloadBatchJob, NumbersFromLauncher: true, GaugeSuffix: "_total",
		PodLabels:    map[string]string{training.LabelOperatorName: training.OperatorNameMPI},
		Objects:      map[corev1.ResourceName]int64{"count/jobs.batch": 1},
		SecretSuffix: "-ssh-key", ServiceSuffix: "-worker", WorkloadSuffix: "-launcher", LauncherHostSuffix: "-launcher", WorkerHostInfix: "-worker-",
		NetworkPolicyPrefix: "mpijob-",
	},
	KindJobSet: {
		Type: training.JobTypeJobSet, APIVersion: jobset.GroupVersion.String(),
		Workload: WorkloadJobSet, IsWorkload: true, WorkloadOwnsWorkers: true, RestartsAsWhole: true,
		// Upstream's names of hosts and of their Service.
		SecretSuffix: "-ssh", LauncherHostSuffix: "-launcher-0-0", WorkerHostInfix: "-node-0-", PodNameSuffix: "-xxxxx",
		NetworkPolicyPrefix: "jobset-", NetworkPolicySuffix: "-network",
	},
}

// Traits are the traits of the kind.
func (k Kind) Traits() Traits { return traits[k] }

// Type is the value of the label training.LabelJobType.
func (k Kind) Type() string { return traits[k].Type }
