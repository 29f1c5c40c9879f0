// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/migrate"
)

// fileObjects returns the objects of a file, at least one of them an MPIJob.
func (e *environment) fileObjects(file string) ([]migrate.Object, error) {
	docs, name, err := e.readDocuments(file)
	if err != nil {
		return nil, err
	}
	objects, err := migrate.Read(docs)
	var tooOld *migrate.TooOldError
	switch {
	case errors.As(err, &tooOld):
		return nil, &failure{code: exitError, message: err.Error(), reason: "UnsupportedVersion", details: []string{"It was read from " + name}, suggestions: tooOld.Advice, page: "migration.md#older-versions"}
	case err != nil:
		return nil, inputFailure(name+" cannot be migrated", err.Error())
	case !slices.ContainsFunc(objects, migrate.Object.IsMPIJob):
		f := inputFailure(name + " contains no MPIJob of kubeflow.org/v2beta1")
		for _, object := range objects {
			f.details = append(f.details, fmt.Sprintf("%s of %s is not an MPIJob", object.Named(), object.Kind().GroupVersion()))
		}
		f.suggestions, f.page = []string{"Pass a file that contains an MPIJob; other objects need no migration."}, "migration.md"
		return nil, f
	}
	return objects, nil
}

// clusterJobs returns MPIJobs as the cluster stores them, unknown fields included. It
// adds the runtimes of the cluster to the options.
func (e *environment) clusterJobs(ctx context.Context, all bool, names []string, options *migrate.Options) (jobs []migrate.Object, err error) {
	namespace, err := e.scope(all)
	if err != nil {
		return nil, err
	}
	reader, err := e.client()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(mpiJobs.GVK)
		if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
			return nil, err
		}
		jobs = append(jobs, object.Object)
	}
	if len(names) == 0 {
		if jobs, err = e.listMPIJobs(ctx, reader, namespace); err != nil {
			return nil, err
		}
	}
	options.Accepted = true
	return jobs, runtimesOfCluster(ctx, reader, namespace, options)
}

func (e *environment) listMPIJobs(ctx context.Context, reader client.WithWatch, namespace string) (jobs []migrate.Object, err error) {
	l := &lister{environment: e, client: reader, namespace: namespace, matching: labels.Everything(), pageSize: 500}
	newList := func() client.ObjectList {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(mpiJobs.GVK.GroupVersion().WithKind(mpiJobs.GVK.Kind + "List"))
		return list
	}
	_, err = l.pages(ctx, newList, func(object runtime.Object) error {
		job := object.(*unstructured.Unstructured)
		job.SetGroupVersionKind(mpiJobs.GVK)
		jobs = append(jobs, job.Object)
		return nil
	})
	return jobs, err
}

// runtimesOfCluster finds the runtimes that jobs could use. If they cannot be read, or
// only mpi-operator is installed, every job gets a runtime of its own.
func runtimesOfCluster(ctx context.Context, reader client.Reader, namespace string, options *migrate.Options) error {
	unreadable := func(err error) bool {
		return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
	}
	var clusterRuntimes v2alpha1.ClusterTrainingRuntimeList
	if err := reader.List(ctx, &clusterRuntimes); err != nil && !unreadable(err) {
		return err
	}
	var namespaceRuntimes v2alpha1.TrainingRuntimeList
	if err := reader.List(ctx, &namespaceRuntimes, client.InNamespace(namespace)); err != nil && !unreadable(err) {
		return err
	}
	options.Runtimes, options.Existing = clusterRuntimes.Items, &migrate.Existing{}
	for i := range namespaceRuntimes.Items {
		options.Existing.Add(&namespaceRuntimes.Items[i])
	}
	return nil
}
