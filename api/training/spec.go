package training

// CleanPodPolicy says which pods are deleted when a job has ended.
type CleanPodPolicy string

const (
	// CleanPodPolicyRunning deletes the pods that still run; those that ended are kept for their logs.
	CleanPodPolicyRunning CleanPodPolicy = "Running"
	// CleanPodPolicyAll deletes every pod, the launcher's too.
	CleanPodPolicyAll CleanPodPolicy = "All"
	// CleanPodPolicyNone deletes no pod.
	CleanPodPolicyNone CleanPodPolicy = "None"
)

// NetworkPolicy asks for a NetworkPolicy that keeps a job to itself.
type NetworkPolicy struct {
	// template chooses the rules. With Default the pods of the job reach each
	// other and the outside, and nothing else reaches them. Restricted also closes
	// the way out, except to the pods of the job, to DNS and to the ports that the
	// operator is configured to leave open (443).
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
