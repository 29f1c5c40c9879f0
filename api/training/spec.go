// SPDX-License-Identifier: Apache-2.0

package training

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CleanPodPolicy selects the pods that are deleted when a job has finished.
type CleanPodPolicy string

const (
	// CleanPodPolicyRunning deletes the pods that still run. Finished pods are kept
	// for their logs.
	CleanPodPolicyRunning CleanPodPolicy = "Running"
	// CleanPodPolicyAll deletes every pod, including the launcher's.
	CleanPodPolicyAll CleanPodPolicy = "All"
	// CleanPodPolicyNone deletes no worker.
	CleanPodPolicyNone CleanPodPolicy = "None"
)

// NetworkPolicy creates a NetworkPolicy that isolates a job.
type NetworkPolicy struct {
	// template selects the rules. Default allows traffic between the pods of the job
	// and all egress, and denies other ingress. Restricted also denies egress, except
	// to the pods of the job, to DNS and to the ports that the operator is configured
	// to allow (443).
	// +required
	Template NetworkPolicyTemplate `json:"template"`
}

// NetworkPolicyTemplate is a set of rules for the network of a job.
// +kubebuilder:validation:Enum=Default;Restricted
type NetworkPolicyTemplate string

const (
	NetworkPolicyDefault    NetworkPolicyTemplate = "Default"
	NetworkPolicyRestricted NetworkPolicyTemplate = "Restricted"
)

// Hang sets what happens to a job whose ranks make no progress.
type Hang struct {
	// after is how long the ranks of a job may make no progress before the job is
	// stalled: no output, no reported step, and no computation outside of MPI. For
	// example 30m; 0s disables the detection. Default: 15m unless the operator is
	// configured otherwise.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?$`
	// +optional
	After *metav1.Duration `json:"after,omitempty"`

	// action is what happens to a stalled job: Warn sets the condition Stalled, Restart
	// restarts the job as after a failure, Fail fails it. A job in which some ranks
	// compute while the others wait for them is never restarted or failed. Default: Warn
	// unless the operator is configured otherwise.
	// +optional
	Action *HangAction `json:"action,omitempty"`
}

// HangAction is what happens to a stalled job.
// +kubebuilder:validation:Enum=Warn;Restart;Fail
type HangAction string

const (
	// HangWarn sets the condition Stalled and does nothing else.
	HangWarn HangAction = "Warn"
	// HangRestart restarts the job, as after a failure, within its backoffLimit.
	HangRestart HangAction = "Restart"
	// HangFail fails the job.
	HangFail HangAction = "Fail"
)

// ConditionStalled is the condition of a job whose ranks make no progress. A job that has
// never been stalled does not have it.
const ConditionStalled = "Stalled"
