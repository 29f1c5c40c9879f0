package v2beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// MPIJobStatus is what has come of a job.
type MPIJobStatus struct {
	// conditions tell the state of the job one question at a time: Created,
	// Pending, Running, Restarting, Suspended, Succeeded, Failed.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []JobCondition `json:"conditions,omitempty"`

	// replicaStatuses count the pods of each role.
	// +optional
	ReplicaStatuses map[MPIReplicaType]*ReplicaStatus `json:"replicaStatuses,omitempty"`

	// startTime is when every pod had its place.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the job ended, well or not.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// lastReconcileTime is kept where another operator has set it.
	// +optional
	LastReconcileTime *metav1.Time `json:"lastReconcileTime,omitempty"`

	training.Progress `json:",inline"`
}

// ReplicaStatus counts the pods of one role.
type ReplicaStatus struct {
	// active is the number of pods that wait or run.
	// +optional
	Active int32 `json:"active,omitempty"`

	// succeeded is the number of pods that ended well.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`

	// failed is the number of pods that ended otherwise.
	// +optional
	Failed int32 `json:"failed,omitempty"`

	// labelSelector is kept where another operator has set it; use selector.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`

	// selector finds the pods, in the form that kubectl -l takes.
	// +optional
	Selector string `json:"selector,omitempty"`
}

// JobCondition answers one question about a job.
type JobCondition struct {
	// type is the question.
	// +required
	Type JobConditionType `json:"type"`

	// status is the answer: True, False or Unknown.
	// +kubebuilder:validation:Enum=True;False;Unknown
	// +required
	Status corev1.ConditionStatus `json:"status"`

	// reason for the answer, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message says more about the reason.
	// +optional
	Message string `json:"message,omitempty"`

	// lastUpdateTime is when any field of the condition changed.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty"`

	// lastTransitionTime is when status changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
}

// JobConditionType is a question about a job.
type JobConditionType string

const (
	// JobCreated surfaces when the operator has taken the job on.
	JobCreated JobConditionType = "Created"
	// JobPending surfaces while not every pod runs.
	JobPending JobConditionType = "Pending"
	// JobRunning surfaces while the launcher and every worker run.
	JobRunning JobConditionType = "Running"
	// JobRestarting surfaces when the launcher failed and is about to be restarted.
	JobRestarting JobConditionType = "Restarting"
	// JobSuspended surfaces while the job may have no pods.
	JobSuspended JobConditionType = "Suspended"
	// JobSucceeded surfaces when the launcher ended with exit code 0.
	JobSucceeded JobConditionType = "Succeeded"
	// JobFailed surfaces when the job ended otherwise.
	JobFailed JobConditionType = "Failed"
)
