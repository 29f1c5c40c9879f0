// SPDX-License-Identifier: Apache-2.0

package training

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
