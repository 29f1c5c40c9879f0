package v2beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// MPIJob runs a command over MPI: a launcher that runs mpirun, and workers that
// run what mpirun starts on them. All of them start together or not at all.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mpijobs,shortName=mj;mpij,categories=training;all
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.phase`,description="Pending, Running, Succeeded or Failed"
// +kubebuilder:printcolumn:name="Workers",type=string,JSONPath=`.status.readyWorkers`,description="Workers that are ready, of all"
// +kubebuilder:printcolumn:name="MPI",type=string,JSONPath=`.spec.mpiImplementation`,description="MPI implementation, where the job names one"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Launcher",type=string,priority=1,JSONPath=`.status.launcherPodStatus.phase`,description="Phase of the launcher's pod"
// +kubebuilder:printcolumn:name="Failure",type=string,priority=1,JSONPath=`.status.failureReason`,description="First cause of the failure"
// +kubebuilder:printcolumn:name="Duration",type=string,priority=1,JSONPath=`.status.duration`,description="From start to end, once the job has ended"
type MPIJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata: the name must leave room for "-worker-" and the number of the
	// last worker within 63 characters.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what shall run. It cannot be changed afterwards, except for
	// runPolicy.suspend and, while the job is suspended, what a queue needs to
	// place the pods: labels, annotations, nodeSelector, tolerations and
	// schedulingGates of the pod templates.
	// +optional
	Spec MPIJobSpec `json:"spec,omitempty"`

	// status is what has come of it.
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

// MPIJobSpec is what shall run.
type MPIJobSpec struct {
	// slotsPerWorker is the number of MPI processes that a worker takes; it is
	// usually the number of its GPUs. From 1 to 8 unless the operator is
	// configured otherwise. 1 if not set.
	// +optional
	SlotsPerWorker *int32 `json:"slotsPerWorker,omitempty"`

	// runLauncherAsWorker puts the launcher into the hostfile too, so that MPI
	// processes run in it. false if not set.
	// +optional
	RunLauncherAsWorker *bool `json:"runLauncherAsWorker,omitempty"`

	// runPolicy is how long the job may run, how often it is tried, what is
	// left of it, and how it is scheduled.
	// +optional
	RunPolicy RunPolicy `json:"runPolicy,omitempty"`

	// mpiReplicaSpecs are the pods: Launcher, exactly one, and Worker, 2 to 100
	// unless the operator is configured otherwise.
	// +required
	MPIReplicaSpecs map[MPIReplicaType]*ReplicaSpec `json:"mpiReplicaSpecs"`

	// sshAuthMountPath is the directory where the job's SSH keys are found in
	// containers that run an sshd of their own. If not set: /root/.ssh where the
	// container runs as root, else /home/mpiuser/.ssh.
	// +optional
	SSHAuthMountPath string `json:"sshAuthMountPath,omitempty"`

	// launcherCreationPolicy says when the launcher starts: AtStartup together
	// with the workers, or WaitForWorkersReady once all of them are ready.
	// AtStartup if not set. With either, mpirun itself starts only when every
	// worker can be reached.
	// +kubebuilder:validation:Enum=AtStartup;WaitForWorkersReady
	// +optional
	LauncherCreationPolicy LauncherCreationPolicy `json:"launcherCreationPolicy,omitempty"`

	// mpiImplementation is the MPI in the image: OpenMPI (4 or 5), IntelMPI or
	// MPICH. Intel is another name for IntelMPI. OpenMPI if not set.
	// +kubebuilder:validation:Enum=OpenMPI;IntelMPI;Intel;MPICH
	// +optional
	MPIImplementation MPIImplementation `json:"mpiImplementation,omitempty"`

	// cleanPodPolicy says which pods are deleted when the job has ended: Running
	// deletes those that still run, All every pod, None no pod. It is the same
	// as runPolicy.cleanPodPolicy; if both are set they must agree. Running if
	// neither is set.
	// +kubebuilder:validation:Enum=Running;All;None
	// +optional
	CleanPodPolicy *training.CleanPodPolicy `json:"cleanPodPolicy,omitempty"`

	// networkPolicy asks for a NetworkPolicy that keeps the job to itself. None
	// is made if not set.
	// +optional
	NetworkPolicy *training.NetworkPolicy `json:"networkPolicy,omitempty"`

	// requireAllHosts makes the job fail if its command ends well without having
	// used every worker, as happens when mpirun does not find the hostfile.
	// false if not set: then it is only reported.
	// +optional
	RequireAllHosts *bool `json:"requireAllHosts,omitempty"`
}

// MPIReplicaType is the role of a pod.
type MPIReplicaType string

const (
	MPIReplicaTypeLauncher MPIReplicaType = "Launcher"
	MPIReplicaTypeWorker   MPIReplicaType = "Worker"
)

// ReplicaSpec describes the pods of one role.
type ReplicaSpec struct {
	// replicas is the number of pods. Of launchers there is exactly one. 1 if
	// not set.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// template of the pods. A worker whose first container has neither command
	// nor args needs no SSH server in its image; one with a command is expected
	// to start an sshd.
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitempty"`

	// restartPolicy of the pods: Never or OnFailure. It wins over the template's.
	// OnFailure for the launcher and Never for workers if not set.
	// +kubebuilder:validation:Enum=Never;OnFailure;Always;ExitCode
	// +optional
	RestartPolicy RestartPolicy `json:"restartPolicy,omitempty"`
}

// RestartPolicy of the pods of one role. Always and ExitCode are names that
// older jobs may have stored; they are refused in new ones.
type RestartPolicy string

const (
	RestartPolicyNever     RestartPolicy = "Never"
	RestartPolicyOnFailure RestartPolicy = "OnFailure"
	RestartPolicyAlways    RestartPolicy = "Always"
	RestartPolicyExitCode  RestartPolicy = "ExitCode"
)

// RunPolicy is how long a job may run, how often it is tried, what is left of
// it, and how it is scheduled.
type RunPolicy struct {
	// cleanPodPolicy is the same as spec.cleanPodPolicy.
	// +kubebuilder:validation:Enum=Running;All;None
	// +optional
	CleanPodPolicy *training.CleanPodPolicy `json:"cleanPodPolicy,omitempty"`

	// ttlSecondsAfterFinished deletes the job this long after it has ended. It
	// is kept if not set.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// activeDeadlineSeconds ends the job if it runs for longer, counted from
	// status.startTime. No limit if not set.
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// backoffLimit is how often the launcher is started anew before the job is
	// failed. 6 if not set.
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// schedulingPolicy is how the pods are placed together.
	// +optional
	SchedulingPolicy *SchedulingPolicy `json:"schedulingPolicy,omitempty"`

	// suspend keeps the job from having pods. Setting it on a running job
	// deletes its pods; taking it back starts the job from its beginning. Kueue
	// sets and clears it. false if not set.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// managedBy names who runs the job: kubeflow.org/mpi-operator, or nothing, is
	// this operator; kueue.x-k8s.io/multikueue runs it in another cluster.
	// Cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ManagedBy *string `json:"managedBy,omitempty"`
}

// ManagedByMPIOperator is the managedBy of the jobs that are ours, besides none.
const ManagedByMPIOperator = "kubeflow.org/mpi-operator"

// SchedulingPolicy is how the pods of a job are placed together.
type SchedulingPolicy struct {
	// minAvailable is how many pods must have a place before any starts. If not
	// set: all of them, the launcher included.
	// +optional
	MinAvailable *int32 `json:"minAvailable,omitempty"`

	// queue of Volcano that the pods wait in.
	// +optional
	Queue string `json:"queue,omitempty"`

	// minResources that must be free before any pod starts. If not set: the sum
	// of what the pods ask for.
	// +optional
	MinResources *corev1.ResourceList `json:"minResources,omitempty"`

	// priorityClass of the pods, the name of a PriorityClass.
	// +optional
	PriorityClass string `json:"priorityClass,omitempty"`

	// scheduleTimeoutSeconds is how long the pods may wait for their places
	// before the job is failed. No limit if not set, or 0.
	// +optional
	ScheduleTimeoutSeconds *int32 `json:"scheduleTimeoutSeconds,omitempty"`
}

// LauncherCreationPolicy says when the launcher starts.
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
