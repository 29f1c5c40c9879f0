// SPDX-License-Identifier: Apache-2.0

package v2alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// TrainJob runs a training over MPI on several workers, with the pod templates of a
// runtime. Its launcher and its workers start together or not at all.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=trainjobs,shortName=tj,categories=training;all
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.phase`,description="Pending, Running, Succeeded or Failed"
// +kubebuilder:printcolumn:name="Workers",type=string,JSONPath=`.status.readyWorkers`,description="Ready workers, of all"
// +kubebuilder:printcolumn:name="Runtime",type=string,JSONPath=`.spec.runtimeRef.name`,description="Runtime of the job"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Nodes",type=integer,priority=1,JSONPath=`.spec.trainer.numNodes`,description="Number of workers, if the job sets it"
// +kubebuilder:printcolumn:name="Launcher",type=string,priority=1,JSONPath=`.status.launcherPodStatus.phase`,description="Phase of the launcher's pod"
// +kubebuilder:printcolumn:name="Failure",type=string,priority=1,JSONPath=`.status.failureReason`,description="Root cause of the failure"
// +kubebuilder:printcolumn:name="Duration",type=string,priority=1,JSONPath=`.status.duration`,description="Run time, when the job has finished"
type TrainJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata: the name has at most 44 characters, because the names of the pods
	// start with it.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the TrainJob. After creation only suspend can be
	// changed.
	// +required
	Spec TrainJobSpec `json:"spec"`

	// status is the observed state of the job.
	// +optional
	Status TrainJobStatus `json:"status,omitempty"`
}

// TrainJobList is a list of TrainJobs.
//
// +kubebuilder:object:root=true
type TrainJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []TrainJob `json:"items"`
}

// TrainJobSpec is the desired state of a TrainJob.
type TrainJobSpec struct {
	// runtimeRef names the runtime of the job. The job uses the runtime as it was
	// when the job was created.
	// +required
	RuntimeRef RuntimeRef `json:"runtimeRef"`

	// trainer is the training itself: image, command, and the workers it runs on.
	// +required
	Trainer Trainer `json:"trainer"`

	// launcher has the settings of the pod that runs mpirun.
	// +optional
	Launcher *Launcher `json:"launcher,omitempty"`

	// initializer fetches a dataset and a model before any other pod is created.
	// +optional
	Initializer *Initializer `json:"initializer,omitempty"`

	// networkPolicy creates a NetworkPolicy that isolates the job. Default: none.
	// +optional
	NetworkPolicy *training.NetworkPolicy `json:"networkPolicy,omitempty"`

	// requireAllHosts makes the job fail if its command succeeds without having used
	// every worker. Default: true where the operator adds mpirun to the command, else
	// false.
	// +optional
	RequireAllHosts *bool `json:"requireAllHosts,omitempty"`

	// suspend stops the job and deletes its pods, and keeps the job. Setting it back
	// to false starts the job from its beginning. Default: false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// activeDeadlineSeconds is the maximum run time: a job that runs for longer
	// fails. It is counted from status.startTime, and starts again after a
	// suspension. At least 1. Default: no limit.
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished deletes the job this many seconds after it has
	// finished. Default: the job is kept.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// cleanPodPolicy selects the pods that are deleted when the job has finished:
	// Running deletes the pods that still run, All deletes every pod, None deletes no
	// worker. Default: Running.
	// +kubebuilder:validation:Enum=Running;All;None
	// +optional
	CleanPodPolicy *training.CleanPodPolicy `json:"cleanPodPolicy,omitempty"`

	// backoffLimit is how many times the whole job, launcher and workers, is
	// restarted after a failure. Default: 0.
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// hang sets what happens if the ranks make no progress. Default: the runtime's.
	// +optional
	Hang *training.Hang `json:"hang,omitempty"`

	// managedBy names the controller of the job: kubeflow.org/trainjob-controller, or
	// an empty value, is this operator. MultiKueue does not run TrainJobs. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ManagedBy *string `json:"managedBy,omitempty"`
}

// ManagedByTrainJobController is the managedBy of jobs that this operator runs. An
// empty value means the same.
const ManagedByTrainJobController = "kubeflow.org/trainjob-controller"

// RuntimeRef names a runtime.
type RuntimeRef struct {
	// apiGroup of the runtime. Default, and only value: kubeflow.org.
	// +optional
	APIGroup *string `json:"apiGroup,omitempty"`

	// kind of the runtime: ClusterTrainingRuntime, or TrainingRuntime in the job's
	// namespace. Immutable.
	// +kubebuilder:validation:Enum=TrainingRuntime;ClusterTrainingRuntime
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +required
	Kind RuntimeKind `json:"kind"`

	// name of the runtime. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// RuntimeKind is one of the two kinds of runtime.
type RuntimeKind string

const (
	RuntimeKindNamespaced RuntimeKind = "TrainingRuntime"
	RuntimeKindCluster    RuntimeKind = "ClusterTrainingRuntime"
)

// Trainer is the training itself.
type Trainer struct {
	// numNodes is the number of workers. The launcher is a further pod. From 1 to 64
	// unless the operator is configured otherwise, and within the runtime's
	// constraints. Default: the runtime's.
	// +optional
	NumNodes *int32 `json:"numNodes,omitempty"`

	// image of launcher and workers. It must contain MPI and the training program. It
	// needs no SSH server.
	// +required
	Image string `json:"image"`

	// command of the launcher. A command that starts with mpirun, mpiexec,
	// mpiexec.hydra or horovodrun runs unchanged; for any other command the operator
	// adds mpirun in front. Default: the runtime's.
	// +listType=atomic
	// +optional
	Command []string `json:"command,omitempty"`

	// args of the command.
	// +listType=atomic
	// +optional
	Args []string `json:"args,omitempty"`

	// env is added to launcher and workers, and overrides the runtime's.
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// volumes are added to launcher and workers.
	// +listType=map
	// +listMapKey=name
	// +optional
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// volumeMounts are added to launcher and workers. They name volumes of the
	// job or of the runtime.
	// +listType=map
	// +listMapKey=mountPath
	// +optional
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// resourcesPerNode are the resources of each worker. Default: those of the
	// runtime's worker. A limit without a request is also the request.
	// +optional
	ResourcesPerNode *corev1.ResourceRequirements `json:"resourcesPerNode,omitempty"`

	// slotsPerWorker is the number of MPI processes per worker, usually the number of
	// its GPUs. From 1 to 16 unless the operator is configured otherwise. Default:
	// the runtime's.
	// +optional
	SlotsPerWorker *int32 `json:"slotsPerWorker,omitempty"`

	// progressPattern is a regular expression (RE2) that finds the progress of the training
	// in the lines of its output: its first group is the step, a second group the number
	// of steps, for example epoch (\d+) of (\d+). Default: the runtime's. Lines of the
	// form trireme: {"step": 10, "of": 100} need no pattern.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ProgressPattern string `json:"progressPattern,omitempty"`
}

// Launcher has the settings of the pod that runs mpirun.
type Launcher struct {
	// resources of the launcher. Default: those of the runtime's launcher, else 2
	// CPUs and 4Gi of memory unless the operator is configured otherwise.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// Initializer fetches a dataset and a model.
type Initializer struct {
	// dataset is fetched to /workspace/dataset.
	// +optional
	Dataset *Source `json:"dataset,omitempty"`

	// model is fetched to /workspace/model.
	// +optional
	Model *Source `json:"model,omitempty"`

	// storage is the volume for both. Launcher and workers mount it at /workspace.
	// Required with a dataset or a model.
	// +optional
	Storage *InitializerStorage `json:"storage,omitempty"`
}

// Source is a dataset or model to fetch.
type Source struct {
	// storageUri is the location: s3://bucket/path, hf://owner/name or
	// pvc://claim/path.
	// +required
	StorageURI string `json:"storageUri"`

	// secretRef names a Secret of the job's namespace whose keys become the
	// environment of the download, such as AWS_ACCESS_KEY_ID or HF_TOKEN.
	// +optional
	SecretRef *SecretRef `json:"secretRef,omitempty"`
}

// SecretRef names a Secret of the job's namespace.
type SecretRef struct {
	// name of the Secret.
	// +required
	Name string `json:"name"`
}

// InitializerStorage is a volume that every pod of a job can mount: an existing
// PersistentVolumeClaim (claimName) or a new one (size).
type InitializerStorage struct {
	// claimName is the name of an existing PersistentVolumeClaim.
	// +optional
	ClaimName string `json:"claimName,omitempty"`

	// size of a new PersistentVolumeClaim, which is deleted with the job. Its access
	// mode is ReadWriteMany if the job has more than one worker.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName of the new PersistentVolumeClaim. Default: the cluster's
	// default class.
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// TrainJobStatus is the observed state of a TrainJob.
type TrainJobStatus struct {
	// conditions of the job: GangScheduling, LauncherReady, WorkersReady,
	// TrainingComplete, Suspended, Failed, Stalled.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// startTime is when every pod was scheduled.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the job succeeded or failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// runtimeDigest identifies the runtime that the job runs with, as sha256: and 64
	// hexadecimal digits. Later changes of the runtime do not change it. The snapshot
	// of that runtime is the ControllerRevision trireme-runtime- followed by the first
	// 32 of these digits.
	// +kubebuilder:validation:MaxLength=71
	// +optional
	RuntimeDigest string `json:"runtimeDigest,omitempty"`

	training.Progress `json:",inline"`
}

// Conditions of a TrainJob.
const (
	// ConditionGangScheduling is true when every pod is scheduled.
	ConditionGangScheduling = "GangScheduling"
	// ConditionLauncherReady is true when the launcher has reached every worker.
	ConditionLauncherReady = "LauncherReady"
	// ConditionWorkersReady is true when every worker is ready.
	ConditionWorkersReady = "WorkersReady"
	// ConditionTrainingComplete is true when the training has succeeded.
	ConditionTrainingComplete = "TrainingComplete"
	// ConditionSuspended is true while the job is suspended.
	ConditionSuspended = "Suspended"
	// ConditionFailed is true when the job has failed.
	ConditionFailed = "Failed"
	// ConditionStalled is true while the ranks of the job make no progress.
	ConditionStalled = training.ConditionStalled
)
