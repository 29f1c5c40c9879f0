// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Known is a value that may be unknown.
type Known[T any] struct {
	Value T
	// Unknown says why the value is unknown: may not list pods. It is empty if the value
	// is known.
	Unknown string
}

// Facts are the input of all checks.
type Facts struct {
	Now       time.Time
	Namespace string

	// Kind and Name of the job; empty if only a namespace is checked.
	Kind job.Kind
	Name string
	// Stored: the job is in the cluster, not only in a file.
	Stored bool
	// Job is the model of the job with all defaults; nil if its runtime is not known,
	// and then NoModel says why.
	Job     *job.Job
	NoModel string
	// RuntimeRef is the kind and name of a TrainJob's runtime.
	RuntimeRef string
	// RuntimeMissing: the runtime does not exist.
	RuntimeMissing bool

	// Previous is the status of the job, Conditions its conditions.
	Previous   diagnosis.Previous
	Conditions []metav1.Condition
	// OfMPIOperator: mpi-operator runs the job.
	OfMPIOperator bool

	// NamespaceObject is nil if the namespace does not exist.
	NamespaceObject Known[*corev1.Namespace]
	Pods            Known[[]corev1.Pod]
	Events          Known[[]corev1.Event]
	// Pulls are the kubelets' events about images: Pulling and Pulled.
	Pulls       []corev1.Event
	Quotas      Known[[]corev1.ResourceQuota]
	LimitRanges Known[[]corev1.LimitRange]
	Policies    Known[[]networkingv1.NetworkPolicy]

	Nodes Known[[]corev1.Node]
	// Used is what the pods of all namespaces request, by node.
	Used Known[map[string]corev1.ResourceList]

	// Autoscaled: a cluster autoscaler adds nodes for pending pods.
	Autoscaled bool

	// Service is the headless Service of the job's host names; nil if it does not exist.
	Service   Known[*corev1.Service]
	Endpoints Known[[]discoveryv1.EndpointSlice]
	// Nameservers are the pods of the cluster DNS.
	Nameservers Known[[]corev1.Pod]

	// PullSecrets are the imagePullSecrets of the pods, and whether they exist.
	PullSecrets map[string]Known[bool]
	// Claims are the PVCs of the pods; nil for one that does not exist.
	Claims map[string]Known[*corev1.PersistentVolumeClaim]
	// StorageClasses are those of new PVCs, and whether they exist.
	StorageClasses map[string]Known[bool]
	// BindingModes are those of the StorageClasses of pending PVCs, as far as they are
	// known.
	BindingModes map[string]storagev1.VolumeBindingMode

	// Queue is the job's LocalQueue, Workload the Workload that Kueue created for the
	// job; nil if it does not exist.
	Queue, Workload Known[*unstructured.Unstructured]
	// Workloads are all of that LocalQueue, the job's own among them.
	Workloads []unstructured.Unstructured
	// KueueServed: Kueue is installed.
	KueueServed bool
	// PodGroups have the name of the job; one for each scheduler that has one.
	PodGroups Known[[]unstructured.Unstructured]

	// OperatorNamespace is the expected namespace of the operator.
	OperatorNamespace string
	Deployment        Known[*appsv1.Deployment]
	Lease             Known[*coordinationv1.Lease]

	// Submission is only set before a job is submitted.
	Submission Submission
}

// reached reports whether the job has passed a step of its timeline.
func (facts *Facts) reached(step training.TimelineStep) bool {
	return slices.ContainsFunc(facts.Previous.Timeline, func(entry training.TimelineEntry) bool { return entry.Step == step })
}

// elsewhere: the job runs in another cluster.
func (facts *Facts) elsewhere() bool { return facts.Job != nil && facts.Job.ManagedBy != "" }

func (facts *Facts) hasFailed() bool    { return facts.Previous.Phase == training.PhaseFailed }
func (facts *Facts) hasSucceeded() bool { return facts.Previous.Phase == training.PhaseSucceeded }

// rank returns the rank of a problem that blocks a job before a step of its timeline.
// For a job that has passed the step it is a note. For a job that failed for one of
// the reasons, it is likely the cause.
func (facts *Facts) rank(blocking Rank, past training.TimelineStep, reasons ...training.FailureReason) Rank {
	switch {
	case facts.hasFailed() && slices.Contains(reasons, facts.Previous.FailureReason):
		return max(blocking, Likely)
	case facts.hasFailed(), facts.hasSucceeded(), facts.reached(past):
		return Note
	default:
		return blocking
	}
}

// podsOf are the job's pods of a role.
func (facts *Facts) podsOf(role string) (matching []*corev1.Pod) {
	for i := range facts.Pods.Value {
		if pod := &facts.Pods.Value[i]; pod.Labels[training.LabelReplicaType] == role {
			matching = append(matching, pod)
		}
	}
	return matching
}

// active returns the pods that have not finished.
func active(pods []*corev1.Pod) (matching []*corev1.Pod) {
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			matching = append(matching, pod)
		}
	}
	return matching
}

// templates returns the pod spec of each role: of an existing pod, or else of the
// model.
func (facts *Facts) templates() (templates []*corev1.PodSpec) {
	for _, role := range []string{training.RoleLauncher, training.RoleWorker} {
		if pod := facts.example(role); pod != nil {
			templates = append(templates, &pod.Spec)
		}
	}
	return templates
}
