// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/budget"
)

// Runtimes lists the runtimes of the cluster and of a namespace.
func (s *Service) Runtimes(ctx context.Context, query RuntimeQuery) ([]Runtime, error) {
	if err := budget.Take(ctx, pageWeight); err != nil {
		return nil, err
	}
	from := auth.CallerFrom(ctx).Client
	runtimes := []Runtime{}
	// Only the summary of each runtime is kept.
	keep := func(runtime Runtime) {
		runtime.Object = nil
		runtimes = append(runtimes, runtime)
	}
	if !query.OnlyOwn {
		err := listPages(ctx, from, func() *v2alpha1.ClusterTrainingRuntimeList { return &v2alpha1.ClusterTrainingRuntimeList{} }, nil, func(page *v2alpha1.ClusterTrainingRuntimeList) {
			for i := range page.Items {
				keep(runtimeOf(v2alpha1.RuntimeKindCluster, &page.Items[i], &page.Items[i].Spec))
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if query.Namespace != "" {
		own := []client.ListOption{client.InNamespace(query.Namespace)}
		err := listPages(ctx, from, func() *v2alpha1.TrainingRuntimeList { return &v2alpha1.TrainingRuntimeList{} }, own, func(page *v2alpha1.TrainingRuntimeList) {
			for i := range page.Items {
				keep(runtimeOf(v2alpha1.RuntimeKindNamespaced, &page.Items[i], &page.Items[i].Spec))
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(runtimes, func(runtime Runtime) bool {
		return query.Framework != "" && !strings.EqualFold(query.Framework, runtime.Framework)
	}), nil
}

// Runtime returns a runtime of a namespace or, without one, of the cluster.
func (s *Service) Runtime(ctx context.Context, namespace, name string) (*Runtime, error) {
	ref := v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: name}
	if namespace == "" {
		ref.Kind = v2alpha1.RuntimeKindCluster
	}
	key, object, spec := jobview.RuntimeToRead(namespace, ref)
	if err := auth.CallerFrom(ctx).Client.Get(ctx, key, object); err != nil {
		return nil, err
	}
	return new(runtimeOf(ref.Kind, object, spec)), nil
}

// frameworkOf returns the framework of a runtime; a runtime without an MPI implementation
// cannot run jobs.
func frameworkOf(spec *v2alpha1.TrainingRuntimeSpec) string {
	if spec.MLPolicy.MPIImplementation == "" {
		return ""
	}
	return "MPI"
}

func runtimeOf(kind v2alpha1.RuntimeKind, object client.Object, spec *v2alpha1.TrainingRuntimeSpec) Runtime {
	object.SetManagedFields(nil)
	object.GetObjectKind().SetGroupVersionKind(v2alpha1.GroupVersion.WithKind(string(kind)))
	j := job.FromTrainJob(&v2alpha1.TrainJob{}, spec, config.Default().JobDefaults())
	return Runtime{
		Name: object.GetName(), Kind: string(kind), Namespace: object.GetNamespace(), Framework: frameworkOf(spec),
		MPIImplementation: string(j.MPI), NumNodes: j.Worker.Replicas, Object: object,
	}
}

// SubmittedRuntime is a runtime as a client sends it. Without a namespace it is one of the
// cluster.
type SubmittedRuntime struct {
	Namespace string
	Object    client.Object
}

// CreateRuntime creates a runtime with the caller's own permissions; dryRun only validates
// it.
func (s *Service) CreateRuntime(ctx context.Context, submitted SubmittedRuntime, dryRun bool) (*Runtime, error) {
	object, err := submitted.object()
	if err != nil {
		return nil, err
	}
	object.SetResourceVersion("")
	options := []client.CreateOption{fieldOwner}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	if err := auth.CallerFrom(ctx).Client.Create(ctx, object, options...); err != nil {
		return nil, err
	}
	auth.RecordFrom(ctx).Name = object.GetName()
	return stored(object), nil
}

// UpdateRuntime replaces a runtime. The resourceVersion of the object must be the one that
// the client has read, so that no change of somebody else is lost.
func (s *Service) UpdateRuntime(ctx context.Context, submitted SubmittedRuntime, dryRun bool) (*Runtime, error) {
	object, err := submitted.object()
	if err != nil {
		return nil, err
	}
	if object.GetResourceVersion() == "" {
		return nil, apierror.Invalid("metadata.resourceVersion", "is required: read the runtime, and send it with the resourceVersion that it has")
	}
	options := []client.UpdateOption{fieldOwner}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	if err := auth.CallerFrom(ctx).Client.Update(ctx, object, options...); err != nil {
		return nil, err
	}
	return stored(object), nil
}

// object returns the runtime with its namespace.
func (r SubmittedRuntime) object() (client.Object, error) {
	if given := r.Object.GetNamespace(); given != "" && given != r.Namespace {
		place := fmt.Sprintf("namespace %q", r.Namespace)
		if r.Namespace == "" {
			place = "the whole cluster"
		}
		return nil, apierror.Invalid("metadata.namespace", "is %q, but the runtime is for %s; remove it, or send the runtime to its namespace", given, place)
	}
	if r.Object.GetName() == "" {
		return nil, apierror.Invalid("metadata.name", "is required")
	}
	object := r.Object.DeepCopyObject().(client.Object)
	object.SetNamespace(r.Namespace)
	object.SetManagedFields(nil)
	return object, nil
}

func stored(object client.Object) *Runtime {
	switch object := object.(type) {
	case *v2alpha1.TrainingRuntime:
		return new(runtimeOf(v2alpha1.RuntimeKindNamespaced, object, &object.Spec))
	case *v2alpha1.ClusterTrainingRuntime:
		return new(runtimeOf(v2alpha1.RuntimeKindCluster, object, &object.Spec))
	default:
		panic(fmt.Sprintf("%T is not a runtime", object))
	}
}
