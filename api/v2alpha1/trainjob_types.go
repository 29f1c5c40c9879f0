package v2alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// TrainJob runs a training over MPI on a number of nodes, in the way that a
// runtime describes. Its launcher and its nodes start together or not at all.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=trainjobs,shortName=tj,categories=training;all
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.phase`,description="Pending, Running, Succeeded or Failed"
// +kubebuilder:printcolumn:name="Workers",type=string,JSONPath=`.status.readyWorkers`,description="Workers that are ready, of all"
// +kubebuilder:printcolumn:name="Runtime",type=string,JSONPath=`.spec.runtimeRef.name`,description="The runtime that the job names"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Nodes",type=integer,priority=1,JSONPath=`.spec.trainer.numNodes`,description="Number of workers, where the job says it"
// +kubebuilder:printcolumn:name="Launcher",type=string,priority=1,JSONPath=`.status.launcherPodStatus.phase`,description="Phase of the launcher's pod"
// +kubebuilder:printcolumn:name="Failure",type=string,priority=1,JSONPath=`.status.failureReason`,description="First cause of the failure"
// +kubebuilder:printcolumn:name="Duration",type=string,priority=1,JSONPath=`.status.duration`,description="From start to end, once the job has ended"
type TrainJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata: the name has at most 44 characters, because the names of the
	// pods are made of it.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what shall run. Only suspend can be changed afterwards.
	// +required
	Spec TrainJobSpec `json:"spec"`

	// status is what has come of it.
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

// TrainJobSpec is what shall run.
type TrainJobSpec struct {
	// runtimeRef names the runtime that the job is made from. The job keeps the
	// runtime as it was when the job was created.
	// +required
	RuntimeRef RuntimeRef `json:"runtimeRef"`

	// trainer is the training itself: image, command, and the nodes it runs on.
	// +required
	Trainer Trainer `json:"trainer"`

	// launcher is what is particular to the pod that runs mpirun.
	// +optional
	Launcher *Launcher `json:"launcher,omitempty"`

	// initializer fetches a dataset and a model before any node is asked for.
	// +optional
	Initializer *Initializer `json:"initializer,omitempty"`

	// networkPolicy asks for a NetworkPolicy that keeps the job to itself. None
	// is made if not set.
	// +optional
	NetworkPolicy *training.NetworkPolicy `json:"networkPolicy,omitempty"`

	// requireAllHosts makes the job fail if its command ends well without having
	// used every node. If not set: true where the operator writes the mpirun
	// line itself, else false.
	// +optional
	RequireAllHosts *bool `json:"requireAllHosts,omitempty"`

	// suspend keeps the job from having pods. Setting it on a running job
	// deletes its pods; taking it back starts the job from its beginning. false
	// if not set.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// activeDeadlineSeconds ends the job if it runs for longer, counted from
	// status.startTime and anew after a suspension. At least 1; no limit if not set.
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished deletes the job this long after it has ended. It
	// is kept if not set.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// cleanPodPolicy says which pods are deleted when the job has ended: Running
	// deletes those that still run, All every pod, None no worker. Running if not
	// set.
	// +kubebuilder:validation:Enum=Running;All;None
	// +optional
	CleanPodPolicy *training.CleanPodPolicy `json:"cleanPodPolicy,omitempty"`

	// backoffLimit is how often the whole job, launcher and nodes, is started
	// anew after a failure. 0 if not set.
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// managedBy names who runs the job: kubeflow.org/trainjob-controller, or
	// nothing, is this operator. MultiKueue does not run TrainJobs. Cannot be
	// changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ManagedBy *string `json:"managedBy,omitempty"`
}

// ManagedByTrainJobController is the managedBy of the jobs that are ours, besides none.
const ManagedByTrainJobController = "kubeflow.org/trainjob-controller"

// RuntimeRef names a runtime.
type RuntimeRef struct {
	// apiGroup of the runtime: kubeflow.org, which is also meant if not set.
	// +optional
	APIGroup *string `json:"apiGroup,omitempty"`

	// kind of the runtime: ClusterTrainingRuntime, or TrainingRuntime of the
	// job's own namespace. Cannot be changed.
	// +kubebuilder:validation:Enum=TrainingRuntime;ClusterTrainingRuntime
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +required
	Kind RuntimeKind `json:"kind"`

	// name of the runtime. Cannot be changed.
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
	// numNodes is the number of workers; the launcher is one pod more. From 1 to
	// 64 unless the operator is configured otherwise, and within the runtime's
	// constraints. If not set: what the runtime says.
	// +optional
	NumNodes *int32 `json:"numNodes,omitempty"`

	// image that launcher and workers run. It needs MPI and the training, and
	// no SSH server.
	// +required
	Image string `json:"image"`

	// command of the launcher. One that starts with mpirun, mpiexec,
	// mpiexec.hydra or horovodrun is run as it is; any other is put behind the
	// mpirun of the runtime. If not set: the runtime's.
	// +listType=atomic
	// +optional
	Command []string `json:"command,omitempty"`

	// args of the command.
	// +listType=atomic
	// +optional
	Args []string `json:"args,omitempty"`

	// env is added to launcher and workers, and wins over the runtime's.
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

	// resourcesPerNode is what each worker needs. If not set: what the runtime's
	// worker asks for. A limit without a request is also the request.
	// +optional
	ResourcesPerNode *corev1.ResourceRequirements `json:"resourcesPerNode,omitempty"`

	// slotsPerWorker is the number of MPI processes that a worker takes; it is
	// usually the number of its GPUs. From 1 to 16 unless the operator is
	// configured otherwise. If not set: what the runtime says.
	// +optional
	SlotsPerWorker *int32 `json:"slotsPerWorker,omitempty"`
}

// Launcher is what is particular to the pod that runs mpirun.
type Launcher struct {
	// resources of the launcher. If not set: what the runtime's launcher asks
	// for, else 2 CPUs and 4Gi of memory unless the operator is configured
	// otherwise.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// Initializer fetches what a training starts from.
type Initializer struct {
	// dataset is fetched to /workspace/dataset.
	// +optional
	Dataset *Source `json:"dataset,omitempty"`

	// model is fetched to /workspace/model.
	// +optional
	Model *Source `json:"model,omitempty"`

	// storage is where both are put. Launcher and workers find it at /workspace.
	// Required with a dataset or a model.
	// +optional
	Storage *InitializerStorage `json:"storage,omitempty"`
}

// Source is something to fetch.
type Source struct {
	// storageUri says where it is: s3://bucket/path, hf://owner/name or
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

// InitializerStorage is a volume that every pod of a job can reach: one that is
// there, by claimName, or a new one, by size.
type InitializerStorage struct {
	// claimName is a PersistentVolumeClaim that is there already.
	// +optional
	ClaimName string `json:"claimName,omitempty"`

	// size of a new PersistentVolumeClaim, which belongs to the job and goes
	// with it. It can be mounted on several nodes if the job has more than one.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName of the new claim. The cluster's default if not set.
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// TrainJobStatus is what has come of a job.
type TrainJobStatus struct {
	// conditions tell the state of the job one question at a time:
	// GangScheduling, LauncherReady, WorkersReady, TrainingComplete, Suspended,
	// Failed.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// startTime is when every pod had its place.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the job ended, well or not.
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
	// ConditionGangScheduling surfaces whether every pod has its place.
	ConditionGangScheduling = "GangScheduling"
	// ConditionLauncherReady surfaces whether the launcher has reached every worker.
	ConditionLauncherReady = "LauncherReady"
	// ConditionWorkersReady surfaces whether every worker is ready.
	ConditionWorkersReady = "WorkersReady"
	// ConditionTrainingComplete surfaces whether the training ended well.
	ConditionTrainingComplete = "TrainingComplete"
	// ConditionSuspended surfaces whether the job may have no pods.
	ConditionSuspended = "Suspended"
	// ConditionFailed surfaces whether the job has failed.
	ConditionFailed = "Failed"
)
