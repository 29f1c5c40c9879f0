// Package surroundings reads what the cluster says about the place that a job
// will run in, for the rules of package validation. Admission reads it from its
// cache, the command line with the rights of whoever asks.
package clusterfacts

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
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/nodes"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// Reader reads what the cluster says about a namespace.
type Reader struct {
	Cache client.Reader
	// Live is asked only for something that the cache does not have and a job
	// would be refused for: what is applied together with a job reaches the cache
	// a moment after the job does.
	Live client.Reader
	// HidesQuota is handed on to the rules.
	HidesQuota bool
}

// Objects are only read, so the cache's own are good enough.
const shared = client.UnsafeDisableDeepCopy

// Of gathers what a job of either kind is judged by, except for the runtime of a
// TrainJob.
func (reader *Reader) Of(ctx context.Context, kind job.Kind, namespace, name string) (*validation.Surroundings, error) {
	in := &validation.Surroundings{
		HasPriorityClass: func(name string) bool {
			// A class that cannot be looked for is not held against the job: Kubernetes will say.
			found, err := reader.find(ctx, client.ObjectKey{Name: name}, &schedulingv1.PriorityClass{})
			return found || err != nil
		},
		AnyNodeHas:  func(name corev1.ResourceName) bool { return reader.anyNodeHas(ctx, name) },
		RunningJobs: func() int { return reader.runningJobs(ctx, namespace) },
		HasJob: func(kind job.Kind, name string) bool {
			return reader.Cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, emptyJob(kind)) == nil
		},
		HidesQuota: reader.HidesQuota,
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
		if err := reader.Cache.List(ctx, list, client.InNamespace(namespace), shared); err != nil {
			return nil, fmt.Errorf("read %T: %w", list, err)
		}
	}
	in.Quotas, in.LimitRanges = quotas.Items, ranges.Items
	for i := range classes.Items {
		if classes.Items[i].GlobalDefault {
			in.DefaultPriorityClass = classes.Items[i].Name
		}
	}
	otherKind := otherKind(kind)
	switch err := reader.Cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, emptyJob(otherKind)); {
	case err == nil:
		in.OtherKind = otherKind
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("look for %s of the same name: %w", otherKind, err)
	}
	return in, nil
}

// otherKind is the kind that a job's name must not belong to.
func otherKind(kind job.Kind) job.Kind {
	if kind == job.KindMPIJob {
		return job.KindTrainJob
	}
	return job.KindMPIJob
}

func emptyJob(kind job.Kind) client.Object {
	if kind == job.KindMPIJob {
		return &v2beta1.MPIJob{}
	}
	return &v2alpha1.TrainJob{}
}

// find reads an object, from the cache if it is there.
func (reader *Reader) find(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error) {
	err := reader.Cache.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err):
		err = reader.Live.Get(ctx, key, object)
	case err == nil:
		err = partial.Complete(ctx, reader.Live, object)
	}
	if err == nil || apierrors.IsNotFound(err) {
		return err == nil, nil
	}
	return false, fmt.Errorf("read %T %s: %w", object, key.Name, err)
}

// Runtime is what a TrainJob is created from, or nil. One that is being deleted is
// treated as absent: its finalizers may keep it for long.
func (reader *Reader) Runtime(ctx context.Context, namespace string, ref *v2alpha1.RuntimeRef) (*v2alpha1.TrainingRuntimeSpec, error) {
	if ref.Kind == v2alpha1.RuntimeKindCluster {
		var runtime v2alpha1.ClusterTrainingRuntime
		if found, err := reader.find(ctx, client.ObjectKey{Name: ref.Name}, &runtime); !found || runtime.DeletionTimestamp != nil {
			return nil, err
		}
		return &runtime.Spec, nil
	}
	var runtime v2alpha1.TrainingRuntime
	if found, err := reader.find(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &runtime); !found || runtime.DeletionTimestamp != nil {
		return nil, err
	}
	return &runtime.Spec, nil
}

// anyNodeHas gives the benefit of the doubt when nodes cannot be read.
func (reader *Reader) anyNodeHas(ctx context.Context, name corev1.ResourceName) bool {
	var list corev1.NodeList
	if err := reader.Cache.List(ctx, &list, shared); err != nil {
		return true
	}
	return nodes.AnyHas(list.Items, name)
}

// runningJobs counts the jobs of a namespace that have pods, of both kinds.
func (reader *Reader) runningJobs(ctx context.Context, namespace string) int {
	running := 0
	var mpiJobs v2beta1.MPIJobList
	if reader.Cache.List(ctx, &mpiJobs, client.InNamespace(namespace), shared) == nil {
		for i := range mpiJobs.Items {
			if active(mpiJobs.Items[i].Status.Phase, mpiJobs.Items[i].Spec.RunPolicy.Suspend) {
				running++
			}
		}
	}
	var trainJobs v2alpha1.TrainJobList
	if reader.Cache.List(ctx, &trainJobs, client.InNamespace(namespace), shared) == nil {
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
