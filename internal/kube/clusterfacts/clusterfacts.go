// SPDX-License-Identifier: Apache-2.0

// Package clusterfacts reads the facts about the cluster and the namespace of a job that
// package validation needs. Admission reads them from its cache, the command line with
// the permissions of the user.
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
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// Reader reads the facts about a namespace.
type Reader struct {
	Cache client.Reader
	// Live is only used for objects that are missing in the cache and that a job would be
	// refused for: objects applied together with a job reach the cache a moment later.
	Live client.Reader
	// HidesQuota is passed to the rules.
	HidesQuota bool
}

// shared: objects are only read, so the cache need not copy them.
const shared = client.UnsafeDisableDeepCopy

// Of reads the facts for a job of either kind, except for the runtime of a TrainJob.
func (r *Reader) Of(ctx context.Context, kind job.Kind, namespace, name string) (*validation.ClusterFacts, error) {
	in := &validation.ClusterFacts{
		HasPriorityClass: func(name string) bool {
			// If the class cannot be read, the job is not refused: Kubernetes checks it later.
			found, err := r.find(ctx, client.ObjectKey{Name: name}, &schedulingv1.PriorityClass{})
			return found || err != nil
		},
		AnyNodeHas:  func(name corev1.ResourceName) bool { return r.anyNodeHas(ctx, name) },
		RunningJobs: func() int { return r.runningJobs(ctx, namespace) },
		HasJob: func(kind job.Kind, name string) bool {
			return r.Cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, emptyJob(kind)) == nil
		},
		HidesQuota: r.HidesQuota,
	}
	var namespaceObject corev1.Namespace
	if _, err := r.find(ctx, client.ObjectKey{Name: namespace}, &namespaceObject); err != nil {
		return nil, err
	}
	in.NamespaceLabels = namespaceObject.Labels
	var quotas corev1.ResourceQuotaList
	var ranges corev1.LimitRangeList
	var classes schedulingv1.PriorityClassList
	for _, list := range []client.ObjectList{&quotas, &ranges, &classes} {
		if err := r.Cache.List(ctx, list, client.InNamespace(namespace), shared); err != nil {
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
	switch err := r.Cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, emptyJob(otherKind)); {
	case err == nil:
		in.OtherKind = otherKind
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("look for %s of the same name: %w", otherKind, err)
	}
	return in, nil
}

// otherKind returns the other kind of jobs, which must not have the same name.
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

// find reads an object, from the cache if possible.
func (r *Reader) find(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error) {
	err := r.Cache.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err):
		err = r.Live.Get(ctx, key, object)
	case err == nil:
		err = partial.Complete(ctx, r.Live, object)
	}
	if err == nil || apierrors.IsNotFound(err) {
		return err == nil, nil
	}
	return false, fmt.Errorf("read %T %s: %w", object, key.Name, err)
}

// Runtime returns the runtime of a TrainJob, or nil. A runtime that is being deleted is
// treated as absent: its finalizers may keep it for long.
func (r *Reader) Runtime(ctx context.Context, namespace string, ref *v2alpha1.RuntimeRef) (*v2alpha1.TrainingRuntimeSpec, error) {
	key, object, spec := jobview.RuntimeToRead(namespace, *ref)
	if found, err := r.find(ctx, key, object); !found || object.GetDeletionTimestamp() != nil {
		return nil, err
	}
	return spec, nil
}

// anyNodeHas returns true if nodes cannot be read.
func (r *Reader) anyNodeHas(ctx context.Context, name corev1.ResourceName) bool {
	var list corev1.NodeList
	if err := r.Cache.List(ctx, &list, shared); err != nil {
		return true
	}
	return nodes.AnyHas(list.Items, name)
}

// runningJobs counts the jobs of a namespace that have pods, of both kinds.
func (r *Reader) runningJobs(ctx context.Context, namespace string) int {
	running := 0
	var mpiJobs v2beta1.MPIJobList
	if r.Cache.List(ctx, &mpiJobs, client.InNamespace(namespace), shared) == nil {
		for i := range mpiJobs.Items {
			if active(mpiJobs.Items[i].Status.Phase, mpiJobs.Items[i].Spec.RunPolicy.Suspend) {
				running++
			}
		}
	}
	var trainJobs v2alpha1.TrainJobList
	if r.Cache.List(ctx, &trainJobs, client.InNamespace(namespace), shared) == nil {
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
