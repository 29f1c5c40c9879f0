// SPDX-License-Identifier: Apache-2.0

package v2beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// MPIJob runs a command over MPI: a launcher that runs mpirun, and workers on which
// mpirun starts the MPI processes. All of them start together or not at all.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="(has(self.spec) && has(self.spec.runPolicy) && has(self.spec.runPolicy.managedBy)) == (has(oldSelf.spec) && has(oldSelf.spec.runPolicy) && has(oldSelf.spec.runPolicy.managedBy)) || (has(oldSelf.status) && has(oldSelf.status.phase) && has(self.spec) && has(self.spec.runPolicy) && has(self.spec.runPolicy.managedBy) && self.spec.runPolicy.managedBy == 'training.kubeflow.org/trireme')",message="field is immutable",fieldPath=".spec.runPolicy.managedBy"
// +kubebuilder:resource:path=mpijobs,shortName=mj;mpij,categories=training;all
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.phase`,description="Pending, Running, Succeeded or Failed"
// +kubebuilder:printcolumn:name="Workers",type=string,JSONPath=`.status.readyWorkers`,description="Ready workers, of all"
// +kubebuilder:printcolumn:name="MPI",type=string,JSONPath=`.spec.mpiImplementation`,description="MPI implementation, if the job sets it"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Launcher",type=string,priority=1,JSONPath=`.status.launcherPodStatus.phase`,description="Phase of the launcher's pod"
// +kubebuilder:printcolumn:name="Failure",type=string,priority=1,JSONPath=`.status.failureReason`,description="Root cause of the failure"
// +kubebuilder:printcolumn:name="Duration",type=string,priority=1,JSONPath=`.status.duration`,description="Run time, when the job has finished"
type MPIJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata: the name, "-worker-" and the index of the last worker must fit into
	// 63 characters.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the MPIJob. After creation only runPolicy.suspend
	// can be changed and, while the job is suspended, the scheduling fields that
	// queues set: labels, annotations, nodeSelector, tolerations and schedulingGates
	// of the pod templates.
	// +optional
	Spec MPIJobSpec `json:"spec,omitempty"`

	// status is the observed state of the job.
	// +optional
	Status MPIJobStatus `json:"status,omitempty"`
}

// MPIJobList is a list of MPIJobs.
//
// +kubebuilder:object:root=true
type MPIJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []MPIJob `json:"items"`
}

// MPIJobSpec is the desired state of an MPIJob.
type MPIJobSpec struct {
	// slotsPerWorker is the number of MPI processes per worker, usually the number of
	// its GPUs. From 1 to 8 unless the operator is configured otherwise. Default: 1.
	// +optional
	SlotsPerWorker *int32 `json:"slotsPerWorker,omitempty"`

	// runLauncherAsWorker adds the launcher to the hostfile, so that MPI processes
	// run in it too. Default: false.
	// +optional
	RunLauncherAsWorker *bool `json:"runLauncherAsWorker,omitempty"`

	// runPolicy sets the deadline, the retries, the cleanup and the scheduling of the
	// job.
	// +optional
	RunPolicy RunPolicy `json:"runPolicy,omitempty"`

	// mpiReplicaSpecs are the pods: Launcher, exactly one, and Worker, 2 to 100
	// unless the operator is configured otherwise.
	// +required
	MPIReplicaSpecs map[MPIReplicaType]*ReplicaSpec `json:"mpiReplicaSpecs"`

	// sshAuthMountPath is the directory of the job's SSH keys in containers that run
	// their own sshd. Default: /root/.ssh where the container runs as root, else
	// /home/mpiuser/.ssh.
	// +optional
	SSHAuthMountPath string `json:"sshAuthMountPath,omitempty"`

	// launcherCreationPolicy selects when the launcher starts: AtStartup starts it
	// with the workers, WaitForWorkersReady when all workers are ready. Default:
	// AtStartup. In both cases mpirun starts only when every worker can be reached.
	// +kubebuilder:validation:Enum=AtStartup;WaitForWorkersReady
	// +optional
	LauncherCreationPolicy LauncherCreationPolicy `json:"launcherCreationPolicy,omitempty"`

	// mpiImplementation is the MPI in the image: OpenMPI (4 or 5), IntelMPI or MPICH.
	// Intel is another name for IntelMPI. Default: OpenMPI.
	// +kubebuilder:validation:Enum=OpenMPI;IntelMPI;Intel;MPICH
	// +optional
	MPIImplementation MPIImplementation `json:"mpiImplementation,omitempty"`

	// cleanPodPolicy selects the pods that are deleted when the job has finished:
	// Running deletes the pods that still run, All deletes every pod, None deletes no
	// pod. It is the same as runPolicy.cleanPodPolicy; if both are set they must be
	// equal. Default: Running.
	// +kubebuilder:validation:Enum=Running;All;None
	// +optional
	CleanPodPolicy *training.CleanPodPolicy `json:"cleanPodPolicy,omitempty"`

	// networkPolicy creates a NetworkPolicy that isolates the job. Default: none.
	// +optional
	NetworkPolicy *training.NetworkPolicy `json:"networkPolicy,omitempty"`

	// requireAllHosts makes the job fail if its command succeeds without having used
	// every worker, which happens when mpirun does not find the hostfile. Default:
	// false; unused workers are then only reported.
	// +optional
	RequireAllHosts *bool `json:"requireAllHosts,omitempty"`

	// progressPattern is a regular expression (RE2) that finds the progress of the training
	// in the lines of its output: its first group is the step, a second group the number
	// of steps, for example epoch (\d+) of (\d+). Lines of the form
	// trireme: {"step": 10, "of": 100} need no pattern.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ProgressPattern string `json:"progressPattern,omitempty"`
}

// MPIReplicaType is the role of a pod.
type MPIReplicaType string

const (
	MPIReplicaTypeLauncher MPIReplicaType = "Launcher"
	MPIReplicaTypeWorker   MPIReplicaType = "Worker"
)

// ReplicaSpec describes the pods of one role.
type ReplicaSpec struct {
	// replicas is the number of pods. There is exactly one launcher. Default: 1.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// template of the pods. A worker whose first container has neither command nor
	// args needs no SSH server in its image. A worker with a command must start an
	// sshd.
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitempty"`

	// restartPolicy of the pods: Never or OnFailure. It overrides the template's.
	// Default: OnFailure for the launcher, Never for workers.
	// +kubebuilder:validation:Enum=Never;OnFailure;Always;ExitCode
	// +optional
	RestartPolicy RestartPolicy `json:"restartPolicy,omitempty"`
}

// RestartPolicy of the pods of one role. Always and ExitCode exist only in jobs that
// were stored by older versions; new jobs with them are refused.
type RestartPolicy string

const (
	RestartPolicyNever     RestartPolicy = "Never"
	RestartPolicyOnFailure RestartPolicy = "OnFailure"
	RestartPolicyAlways    RestartPolicy = "Always"
	RestartPolicyExitCode  RestartPolicy = "ExitCode"
)

// RunPolicy sets the deadline, the retries, the cleanup and the scheduling of a job.
type RunPolicy struct {
	// cleanPodPolicy is the same as spec.cleanPodPolicy.
	// +kubebuilder:validation:Enum=Running;All;None
	// +optional
	CleanPodPolicy *training.CleanPodPolicy `json:"cleanPodPolicy,omitempty"`

	// ttlSecondsAfterFinished deletes the job this many seconds after it has
	// finished. Default: the job is kept.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// activeDeadlineSeconds is the maximum run time, counted from status.startTime: a
	// job that runs for longer fails. Default: no limit.
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// backoffLimit is how many times the launcher is restarted before the job fails.
	// Default: 6.
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// schedulingPolicy has the settings of gang scheduling.
	// +optional
	SchedulingPolicy *SchedulingPolicy `json:"schedulingPolicy,omitempty"`

	// suspend stops the job and deletes its pods, and keeps the job. Setting it back
	// to false starts the job from its beginning. Kueue sets and clears it. Default:
	// false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// hang sets what happens if the ranks make no progress. Default: the operator's
	// configuration.
	// +optional
	Hang *training.Hang `json:"hang,omitempty"`

	// managedBy names the controller of the job: training.kubeflow.org/trireme is
	// this operator; kubeflow.org/mpi-operator, or no value, is mpi-operator if it
	// runs on this cluster, otherwise this operator; kueue.x-k8s.io/multikueue runs
	// the job in another cluster. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ManagedBy *string `json:"managedBy,omitempty"`
}

// ManagedByMPIOperator is the managedBy of jobs that mpi-operator runs. No value means
// the same. Where mpi-operator is not installed, this operator runs these jobs.
const ManagedByMPIOperator = "kubeflow.org/mpi-operator"

// SchedulingPolicy has the settings of gang scheduling.
type SchedulingPolicy struct {
	// minAvailable is the number of pods that must be schedulable before any starts.
	// Default: all pods, including the launcher.
	// +optional
	MinAvailable *int32 `json:"minAvailable,omitempty"`

	// queue of Volcano or KAI that the pods wait in.
	// +optional
	Queue string `json:"queue,omitempty"`

	// minResources that must be free before any pod starts. Default: the sum of the
	// requests of the pods.
	// +optional
	MinResources *corev1.ResourceList `json:"minResources,omitempty"`

	// priorityClass of the pods, the name of a PriorityClass.
	// +optional
	PriorityClass string `json:"priorityClass,omitempty"`

	// scheduleTimeoutSeconds is how long the pods may wait to be scheduled before the
	// job fails. Default: 0, which is no limit.
	// +optional
	ScheduleTimeoutSeconds *int32 `json:"scheduleTimeoutSeconds,omitempty"`
}

// LauncherCreationPolicy selects when the launcher starts.
type LauncherCreationPolicy string

const (
	LauncherCreationPolicyAtStartup           LauncherCreationPolicy = "AtStartup"
	LauncherCreationPolicyWaitForWorkersReady LauncherCreationPolicy = "WaitForWorkersReady"
)

// MPIImplementation is the MPI in an image.
type MPIImplementation string

const (
	MPIImplementationOpenMPI  MPIImplementation = "OpenMPI"
	MPIImplementationIntelMPI MPIImplementation = "IntelMPI"
	// MPIImplementationIntel is what mpi-operator calls IntelMPI.
	MPIImplementationIntel MPIImplementation = "Intel"
	MPIImplementationMPICH MPIImplementation = "MPICH"
)
