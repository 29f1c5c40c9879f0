// SPDX-License-Identifier: Apache-2.0

package v2alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// TrainingRuntime is a runtime for the TrainJobs of its own namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=trainingruntimes,shortName=tr,categories=training
// +kubebuilder:printcolumn:name="MPI Implementation",type=string,JSONPath=`.spec.mlPolicy.mpiImplementation`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.spec.mlPolicy.numNodes`,description="Workers of a job that does not set the number"
// +kubebuilder:printcolumn:name="Slots",type=integer,JSONPath=`.spec.mlPolicy.slotsPerWorker`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TrainingRuntime struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the pods of jobs. A change affects only jobs that are created
	// later.
	// +required
	Spec TrainingRuntimeSpec `json:"spec"`
}

// TrainingRuntimeList is a list of TrainingRuntimes.
//
// +kubebuilder:object:root=true
type TrainingRuntimeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []TrainingRuntime `json:"items"`
}

// ClusterTrainingRuntime is a runtime for the TrainJobs of every namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clustertrainingruntimes,scope=Cluster,shortName=ctr,categories=training
// +kubebuilder:printcolumn:name="MPI Implementation",type=string,JSONPath=`.spec.mlPolicy.mpiImplementation`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.spec.mlPolicy.numNodes`,description="Workers of a job that does not set the number"
// +kubebuilder:printcolumn:name="Slots",type=integer,JSONPath=`.spec.mlPolicy.slotsPerWorker`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterTrainingRuntime struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the pods of jobs. A change affects only jobs that are created
	// later.
	// +required
	Spec TrainingRuntimeSpec `json:"spec"`
}

// ClusterTrainingRuntimeList is a list of ClusterTrainingRuntimes.
//
// +kubebuilder:object:root=true
type ClusterTrainingRuntimeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ClusterTrainingRuntime `json:"items"`
}

// TrainingRuntimeSpec describes the pods of jobs.
type TrainingRuntimeSpec struct {
	// mlPolicy sets the MPI implementation, and defaults for the size of jobs.
	// +required
	MLPolicy MLPolicy `json:"mlPolicy"`

	// podGroupPolicy selects how the pods of a job are gang scheduled. Default: the
	// gang scheduler that the cluster has, with a timeout of 300 seconds.
	// +optional
	PodGroupPolicy *PodGroupPolicy `json:"podGroupPolicy,omitempty"`

	// constraints limit the jobs that use this runtime.
	// +optional
	Constraints *Constraints `json:"constraints,omitempty"`

	// hang sets what happens if the ranks of a job make no progress. Default: the
	// operator's configuration.
	// +optional
	Hang *training.Hang `json:"hang,omitempty"`

	// progressPattern is a regular expression (RE2) that finds the progress of a training
	// in the lines of its output: its first group is the step, a second group the number
	// of steps, for example epoch (\d+) of (\d+). A job can set its own.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ProgressPattern string `json:"progressPattern,omitempty"`

	// template of the pods.
	// +required
	Template RuntimeTemplate `json:"template"`
}

// MLPolicy sets the MPI implementation, and defaults for the size of jobs.
type MLPolicy struct {
	// numNodes is the number of workers of a job that does not set it. From 1 to 64
	// unless the operator is configured otherwise.
	// +optional
	NumNodes *int32 `json:"numNodes,omitempty"`

	// mpiImplementation is the MPI in the images: OpenMPI (4 or 5), IntelMPI or
	// MPICH. A runtime without it cannot be used by a TrainJob.
	// +optional
	MPIImplementation MPIImplementation `json:"mpiImplementation,omitempty"`

	// slotsPerWorker is the number of MPI processes per worker of a job that does not
	// set it. From 1 to 16 unless the operator is configured otherwise. Default: 1.
	// +optional
	SlotsPerWorker *int32 `json:"slotsPerWorker,omitempty"`
}

// MPIImplementation is the MPI in an image.
// +kubebuilder:validation:Enum=OpenMPI;IntelMPI;MPICH
type MPIImplementation string

const (
	MPIImplementationOpenMPI  MPIImplementation = "OpenMPI"
	MPIImplementationIntelMPI MPIImplementation = "IntelMPI"
	MPIImplementationMPICH    MPIImplementation = "MPICH"
)

// PodGroupPolicy selects the gang scheduler: coscheduling, volcano, kai or native. If none
// is set, the one that the cluster has is used.
type PodGroupPolicy struct {
	// coscheduling uses the PodGroup of scheduler-plugins (scheduling.x-k8s.io).
	// +optional
	Coscheduling *GangPolicy `json:"coscheduling,omitempty"`

	// volcano uses the PodGroup of Volcano (scheduling.volcano.sh).
	// +optional
	Volcano *QueuedGangPolicy `json:"volcano,omitempty"`

	// kai uses the PodGroup of NVIDIA's KAI scheduler (scheduling.run.ai).
	// +optional
	KAI *QueuedGangPolicy `json:"kai,omitempty"`

	// native uses the PodGroup of Kubernetes itself (scheduling.k8s.io).
	// +optional
	Native *GangPolicy `json:"native,omitempty"`

	// priorityClass of the pods, the name of a PriorityClass.
	// +optional
	PriorityClass string `json:"priorityClass,omitempty"`

	// priorityClassName is another name for priorityClass; if both are set they
	// must agree.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// GangPolicy has the settings that all gang schedulers share.
type GangPolicy struct {
	// scheduleTimeoutSeconds is how long the pods may wait to be scheduled before the
	// job fails with GangSchedulingTimeout. From 60 to 3600. Default: 300; use 600
	// for large clusters.
	// +optional
	ScheduleTimeoutSeconds *int32 `json:"scheduleTimeoutSeconds,omitempty"`
}

// QueuedGangPolicy has the settings of gang schedulers with queues.
type QueuedGangPolicy struct {
	GangPolicy `json:",inline"`

	// queue of the scheduler that the pods wait in. It must exist. Default: the default
	// queue of Volcano, or default-queue of KAI.
	// +optional
	Queue string `json:"queue,omitempty"`
}

// Constraints limit the jobs that use a runtime.
type Constraints struct {
	// maxNodes is the maximum number of workers of a job. At least 1.
	// +optional
	MaxNodes *int32 `json:"maxNodes,omitempty"`

	// maxGPUsPerNode is the maximum number of GPUs that each worker may request. At
	// least 0.
	// +optional
	MaxGPUsPerNode *int32 `json:"maxGPUsPerNode,omitempty"`

	// requiredNodeLabels are labels that the nodes of the workers must have. They are
	// added to the workers' nodeSelector.
	// +optional
	RequiredNodeLabels map[string]string `json:"requiredNodeLabels,omitempty"`
}

// RuntimeTemplate is the template of the pods.
type RuntimeTemplate struct {
	// spec of the template.
	// +required
	Spec RuntimeTemplateSpec `json:"spec"`
}

// RuntimeTemplateSpec has the templates of the pods.
type RuntimeTemplateSpec struct {
	// replicatedJobs are exactly two: launcher and worker.
	// +listType=map
	// +listMapKey=name
	// +required
	ReplicatedJobs []ReplicatedJob `json:"replicatedJobs"`
}

// Names of the replicated jobs.
const (
	ReplicatedJobLauncher = "launcher"
	ReplicatedJobWorker   = "worker"
)

// ReplicatedJob describes the pods of one role.
type ReplicatedJob struct {
	// name of the role: launcher or worker.
	// +required
	Name string `json:"name"`

	// replicas of the worker is the number of workers if neither the job nor mlPolicy
	// sets it. There is exactly one launcher.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// template of the pods. Its first container runs the training: it gets the job's
	// image, command, environment and resources.
	// +required
	Template corev1.PodTemplateSpec `json:"template"`
}
