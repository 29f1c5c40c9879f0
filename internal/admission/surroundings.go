package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/validation"
)

// +kubebuilder:rbac:groups="",resources=namespaces;nodes;resourcequotas;limitranges,verbs=get;list;watch
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs;trainjobs;trainingruntimes;clustertrainingruntimes,verbs=get;list;watch

// Cached are the kinds that admission reads from the cache, so that no request
// to the API server is on a job's way.
func Cached() []client.Object {
	return []client.Object{
		&corev1.Namespace{}, &corev1.Node{}, &corev1.ResourceQuota{}, &corev1.LimitRange{}, &schedulingv1.PriorityClass{},
		&v2beta1.MPIJob{}, &v2alpha1.TrainJob{}, &v2alpha1.TrainingRuntime{}, &v2alpha1.ClusterTrainingRuntime{},
	}
}

// reader reads what the cluster says about a namespace.
type reader struct {
	cache client.Reader
	// live is asked only for something that the cache does not have and a job
	// would be refused for: what is applied together with a job reaches the cache
	// a moment after the job does.
	live client.Reader
}

// Objects are only read, so the cache's own are good enough.
const shared = client.UnsafeDisableDeepCopy

// surroundings gathers what both kinds are judged by. other is an empty object
// of the kind that the name must not belong to.
func (reader *reader) surroundings(ctx context.Context, namespace, name string, other client.Object, otherKind job.Kind) (*validation.Surroundings, error) {
	in := &validation.Surroundings{
		HasPriorityClass: func(name string) bool {
			// A class that cannot be looked for is not held against the job: Kubernetes will say.
			found, err := reader.find(ctx, client.ObjectKey{Name: name}, &schedulingv1.PriorityClass{})
			return found || err != nil
		},
		AnyNodeHas:  func(name corev1.ResourceName) bool { return reader.anyNodeHas(ctx, name) },
		RunningJobs: func() int { return reader.runningJobs(ctx, namespace) },
	}
	var place corev1.Namespace
	if _, err := reader.find(ctx, client.ObjectKey{Name: namespace}, &place); err != nil {
		return nil, err
	}
	in.NamespaceLabels = place.Labels
	var quotas corev1.ResourceQuotaList
	var ranges corev1.LimitRangeList
	var classes schedulingv1.PriorityClassList
	for _, list := range []client.ObjectList{&quotas, &ranges, &classes} {
		if err := reader.cache.List(ctx, list, client.InNamespace(namespace), shared); err != nil {
			return nil, fmt.Errorf("read %T: %w", list, err)
		}
	}
	in.Quotas, in.LimitRanges = quotas.Items, ranges.Items
	for i := range classes.Items {
		if classes.Items[i].GlobalDefault {
			in.DefaultPriorityClass = classes.Items[i].Name
		}
	}
	switch err := reader.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, other); {
	case err == nil:
		in.OtherKind = otherKind
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("look for %s of the same name: %w", otherKind, err)
	}
	return in, nil
}

// find reads an object, from the cache if it is there.
func (reader *reader) find(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error) {
	err := reader.cache.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		err = reader.live.Get(ctx, key, object)
	}
	if err == nil || apierrors.IsNotFound(err) {
		return err == nil, nil
	}
	return false, fmt.Errorf("read %T %s: %w", object, key.Name, err)
}

// runtime is what a TrainJob is made from, or nil.
func (reader *reader) runtime(ctx context.Context, namespace string, ref *v2alpha1.RuntimeRef) (*v2alpha1.TrainingRuntimeSpec, error) {
	if ref.Kind == v2alpha1.RuntimeKindCluster {
		var runtime v2alpha1.ClusterTrainingRuntime
		if found, err := reader.find(ctx, client.ObjectKey{Name: ref.Name}, &runtime); !found {
			return nil, err
		}
		return &runtime.Spec, nil
	}
	var runtime v2alpha1.TrainingRuntime
	if found, err := reader.find(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &runtime); !found {
		return nil, err
	}
	return &runtime.Spec, nil
}

// anyNodeHas gives the benefit of the doubt when nodes cannot be read.
func (reader *reader) anyNodeHas(ctx context.Context, name corev1.ResourceName) bool {
	var nodes corev1.NodeList
	if err := reader.cache.List(ctx, &nodes, shared); err != nil {
		return true
	}
	for i := range nodes.Items {
		if quantity := nodes.Items[i].Status.Allocatable[name]; !quantity.IsZero() {
			return true
		}
	}
	return false
}

// runningJobs counts the jobs of a namespace that have pods, of both kinds.
func (reader *reader) runningJobs(ctx context.Context, namespace string) int {
	running := 0
	var mpiJobs v2beta1.MPIJobList
	if reader.cache.List(ctx, &mpiJobs, client.InNamespace(namespace), shared) == nil {
		for i := range mpiJobs.Items {
			if active(mpiJobs.Items[i].Status.Phase, mpiJobs.Items[i].Spec.RunPolicy.Suspend) {
				running++
			}
		}
	}
	var trainJobs v2alpha1.TrainJobList
	if reader.cache.List(ctx, &trainJobs, client.InNamespace(namespace), shared) == nil {
		for i := range trainJobs.Items {
			if active(trainJobs.Items[i].Status.Phase, trainJobs.Items[i].Spec.Suspend) {
				running++
			}
		}
	}
	return running
}

func active(phase training.Phase, suspend *bool) bool {
	return phase == training.PhaseRunning && (suspend == nil || !*suspend)
}
