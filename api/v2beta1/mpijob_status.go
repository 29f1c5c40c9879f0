// SPDX-License-Identifier: Apache-2.0

package v2beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// MPIJobStatus is the observed state of an MPIJob.
type MPIJobStatus struct {
	// conditions of the job: Created, Pending, Running, Restarting, Suspended,
	// Succeeded, Failed, Stalled.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []JobCondition `json:"conditions,omitempty"`

	// replicaStatuses count the pods of each role.
	// +optional
	ReplicaStatuses map[MPIReplicaType]*ReplicaStatus `json:"replicaStatuses,omitempty"`

	// startTime is when every pod was scheduled.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the job succeeded or failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// lastReconcileTime is kept where another operator has set it.
	// +optional
	LastReconcileTime *metav1.Time `json:"lastReconcileTime,omitempty"`

	training.Progress `json:",inline"`
}

// ReplicaStatus counts the pods of one role.
type ReplicaStatus struct {
	// active is the number of pods that are pending or running.
	// +optional
	Active int32 `json:"active,omitempty"`

	// succeeded is the number of pods that succeeded.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`

	// failed is the number of pods that failed.
	// +optional
	Failed int32 `json:"failed,omitempty"`

	// labelSelector is kept where another operator has set it; use selector.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`

	// selector of the pods, in the format of kubectl -l.
	// +optional
	Selector string `json:"selector,omitempty"`
}

// JobCondition is a condition of a job.
type JobCondition struct {
	// type of the condition.
	// +required
	Type JobConditionType `json:"type"`

	// status of the condition: True, False or Unknown.
	// +kubebuilder:validation:Enum=True;False;Unknown
	// +required
	Status corev1.ConditionStatus `json:"status"`

	// reason of the status, in CamelCase.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message with details.
	// +optional
	Message string `json:"message,omitempty"`

	// lastUpdateTime is when any field of the condition changed.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty"`

	// lastTransitionTime is when status changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
}

// JobConditionType is a type of conditions.
type JobConditionType string

const (
	// JobCreated is true when the operator has accepted the job.
	JobCreated JobConditionType = "Created"
	// JobPending is true while not every pod is running.
	JobPending JobConditionType = "Pending"
	// JobRunning is true while the launcher and every worker are running.
	JobRunning JobConditionType = "Running"
	// JobRestarting is true when the launcher failed and a restart is due.
	JobRestarting JobConditionType = "Restarting"
	// JobSuspended is true while the job is suspended.
	JobSuspended JobConditionType = "Suspended"
	// JobSucceeded is true when the launcher completed with exit code 0.
	JobSucceeded JobConditionType = "Succeeded"
	// JobFailed is true when the job failed.
	JobFailed JobConditionType = "Failed"
	// JobStalled is true while the ranks of the job make no progress.
	JobStalled JobConditionType = training.ConditionStalled
)
