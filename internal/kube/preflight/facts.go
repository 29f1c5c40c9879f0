package preflight

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Known is the answer to a question that there may be no answer to.
type Known[T any] struct {
	Value T
	// Unknown says why there is none: may not list pods.
	Unknown string
}

// Facts are all that the checks look at.
type Facts struct {
	Now       time.Time
	Namespace string

	// Kind and Name of the job; empty where only a namespace is asked about.
	Kind job.Kind
	Name string
	// Stored: the job is in the cluster, and not only in a file.
	Stored bool
	// Job with every default; nil where its runtime is not known, and then
	// NoModel says why.
	Job     *job.Job
	NoModel string
	// RuntimeRef is how a TrainJob names its runtime.
	RuntimeRef string
	// RuntimeMissing: there is no such runtime.
	RuntimeMissing bool

	// Previous is what the job's status says, Conditions what they answer.
	Previous   diagnosis.Previous
	Conditions []metav1.Condition

	// Place is the namespace.
	Place       Known[*corev1.Namespace]
	Pods        Known[[]corev1.Pod]
	Events      Known[[]corev1.Event]
	Quotas      Known[[]corev1.ResourceQuota]
	LimitRanges Known[[]corev1.LimitRange]
	Policies    Known[[]networkingv1.NetworkPolicy]

	Nodes Known[[]corev1.Node]
	// Used is what the pods of all namespaces ask for, by node.
	Used Known[map[string]corev1.ResourceList]

	// Autoscaled: the cluster makes nodes where pods need them.
	Autoscaled bool

	// Service is that of the job's host names; nil if there is none.
	Service   Known[*corev1.Service]
	Endpoints Known[[]discoveryv1.EndpointSlice]
	// Nameservers are the pods of the cluster's DNS.
	Nameservers Known[[]corev1.Pod]

	// PullSecrets are the Secrets that pods name for their images, and whether
	// they are there.
	PullSecrets map[string]Known[bool]
	// Claims that the pods name; nil for one that is not there.
	Claims map[string]Known[*corev1.PersistentVolumeClaim]
	// StorageClasses that new claims name, and whether they are there.
	StorageClasses map[string]Known[bool]

	// Queue is Kueue's LocalQueue of the job, Workload what Kueue made of the job;
	// nil if there is none.
	Queue, Workload Known[*unstructured.Unstructured]
	// KueueServed: the cluster has Kueue.
	KueueServed bool
	// PodGroups of the job's name, of every scheduler that the cluster has.
	PodGroups Known[[]unstructured.Unstructured]

	// OperatorNamespace is where the operator is expected.
	OperatorNamespace string
	Deployment        Known[*appsv1.Deployment]
	Lease             Known[*coordinationv1.Lease]

	// Submission is what only matters before a job is submitted.
	Submission Submission
}

// reached tells whether a step of the job's life is behind it.
func (facts *Facts) reached(step training.TimelineStep) bool {
	return slices.ContainsFunc(facts.Previous.Timeline, func(entry training.TimelineEntry) bool { return entry.Step == step })
}

// elsewhere: the job runs in another cluster.
func (facts *Facts) elsewhere() bool { return facts.Job != nil && facts.Job.ManagedBy != "" }

// hasFailed, has succeeded: the job has ended.
func (facts *Facts) hasFailed() bool    { return facts.Previous.Phase == training.PhaseFailed }
func (facts *Facts) hasSucceeded() bool { return facts.Previous.Phase == training.PhaseSucceeded }

// rank is that of something which would keep a job from going on. A job that got
// past the step is not held by it; one that failed was, if it failed for one of
// these reasons.
func (facts *Facts) rank(hindering Rank, past training.TimelineStep, reasons ...training.FailureReason) Rank {
	switch {
	case facts.hasFailed() && slices.Contains(reasons, facts.Previous.FailureReason):
		return max(hindering, Likely)
	case facts.hasFailed(), facts.hasSucceeded(), facts.reached(past):
		return Note
	default:
		return hindering
	}
}

// podsOf are the job's pods of a role.
func (facts *Facts) podsOf(role string) (found []*corev1.Pod) {
	for i := range facts.Pods.Value {
		if pod := &facts.Pods.Value[i]; pod.Labels[training.LabelReplicaType] == role {
			found = append(found, pod)
		}
	}
	return found
}

// active are those pods that have not ended.
func active(pods []*corev1.Pod) (found []*corev1.Pod) {
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			found = append(found, pod)
		}
	}
	return found
}

// templates are the pods of the job as far as they are known: one that is there,
// else what the model says.
func (facts *Facts) templates() (templates []*corev1.PodSpec) {
	for _, role := range []string{training.RoleLauncher, training.RoleWorker} {
		if pod := facts.example(role); pod != nil {
			templates = append(templates, &pod.Spec)
		}
	}
	return templates
}
