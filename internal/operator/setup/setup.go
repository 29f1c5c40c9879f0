// SPDX-License-Identifier: Apache-2.0

// Package setup does the parts of an installation that Helm cannot do: it updates CRDs,
// creates runtimes once the operator answers, and cleans up before an uninstall. The
// chart runs it in Jobs (charts/trireme/templates/setup).
package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// fieldManager owns the fields that an installation sets.
const fieldManager client.FieldOwner = "trireme"

// Setup works on the cluster of a client. It reports what it did to Output.
type Setup struct {
	Client client.Client
	Output io.Writer
	// Pause between attempts while the operator does not answer yet.
	Pause time.Duration
	// Manage is the share of the MPIJobs that Trireme runs.
	Manage job.Share
}

// UpdateCRDs applies the definitions of the job APIs, and takes over those of
// mpi-operator.
func (s Setup) UpdateCRDs(ctx context.Context, documents [][]byte) error {
	for _, document := range documents {
		definition, err := parse(document)
		if err != nil {
			return err
		}
		if err := s.apply(ctx, definition, client.ForceOwnership); err != nil {
			return fmt.Errorf("update CustomResourceDefinition %s: %w", definition.GetName(), err)
		}
		s.report("CustomResourceDefinition %s is up to date", definition.GetName())
	}
	return nil
}

// ApplyRuntimes creates or updates runtimes. A runtime that a user has changed is kept.
func (s Setup) ApplyRuntimes(ctx context.Context, documents [][]byte) error {
	for _, document := range documents {
		runtime, err := parse(document)
		if err != nil {
			return err
		}
		err = s.applyWhenServed(ctx, runtime)
		switch {
		case apierrors.IsConflict(err):
			s.report("%s %s was changed on this cluster and is kept. To get the original, delete it and upgrade", runtime.GetKind(), runtime.GetName())
		case err != nil:
			return fmt.Errorf("apply %s %s: %w", runtime.GetKind(), runtime.GetName(), err)
		default:
			s.report("%s %s is up to date", runtime.GetKind(), runtime.GetName())
		}
	}
	return nil
}

// applyWhenServed retries while the webhook of the operator does not answer.
func (s Setup) applyWhenServed(ctx context.Context, object *unstructured.Unstructured) error {
	for {
		err := s.apply(ctx, object.DeepCopy())
		if err == nil || apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(s.Pause):
		}
	}
}

func (s Setup) apply(ctx context.Context, object *unstructured.Unstructured, options ...client.ApplyOption) error {
	return s.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), append(options, fieldManager)...)
}

// Uninstall deletes the runtimes that users did not change. While there are unfinished
// jobs it does nothing and returns an error.
func (s Setup) Uninstall(ctx context.Context, runtimes [][]byte) error {
	if err := s.refuseUnfinishedJobs(ctx); err != nil {
		return err
	}
	for _, document := range runtimes {
		if err := s.deleteRuntime(ctx, document); err != nil {
			return err
		}
	}
	return nil
}

// deleteRuntime keeps a runtime with changes of users: applying it would conflict.
func (s Setup) deleteRuntime(ctx context.Context, document []byte) error {
	runtime, err := parse(document)
	if err != nil {
		return err
	}
	name := runtime.GetKind() + " " + runtime.GetName()
	var stored unstructured.Unstructured
	stored.SetGroupVersionKind(runtime.GroupVersionKind())
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(runtime), &stored); err != nil {
		return client.IgnoreNotFound(err)
	}
	if changedByUsers(&stored) {
		s.report("%s was changed on this cluster and is kept", name)
		return nil
	}
	if err := s.Client.Delete(ctx, &stored); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	s.report("%s is deleted", name)
	return nil
}

// changedByUsers reports whether anyone else owns a field of the spec.
func changedByUsers(runtime *unstructured.Unstructured) bool {
	for _, entry := range runtime.GetManagedFields() {
		if entry.Manager != string(fieldManager) && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:spec"`) {
			return true
		}
	}
	return false
}

// DeleteSnapshots deletes the snapshots of runtimes. It runs after the operator was
// deleted, which would create those of stored jobs again.
func (s Setup) DeleteSnapshots(ctx context.Context) error {
	var snapshots metav1.PartialObjectMetadataList
	snapshots.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevisionList"})
	if err := s.Client.List(ctx, &snapshots, client.HasLabels{training.LabelRuntimeDigest}); err != nil {
		return fmt.Errorf("list the snapshots of runtimes: %w", err)
	}
	for i := range snapshots.Items {
		if err := s.Client.Delete(ctx, &snapshots.Items[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete ControllerRevision %s: %w", client.ObjectKeyFromObject(&snapshots.Items[i]), err)
		}
	}
	return nil
}

func (s Setup) refuseUnfinishedJobs(ctx context.Context) error {
	isOurs := func(one *unstructured.Unstructured) (bool, error) {
		if one.GetKind() != string(job.KindMPIJob) {
			return true, nil
		}
		mpiJob, err := asMPIJob(one)
		return err == nil && s.Manage.Runs(mpiJob), err
	}
	mpiJobs, err := s.unfinished(ctx, mpiJobList, isOurs)
	if err != nil {
		return err
	}
	trainJobs, err := s.unfinished(ctx, trainJobList, isOurs)
	if err != nil {
		return err
	}
	unfinished := slices.Concat(mpiJobs, trainJobs)
	if len(unfinished) == 0 {
		return nil
	}
	return fmt.Errorf("%d jobs are not finished: %s. Wait until they have finished, or delete them, and uninstall again. "+
		"To uninstall now, and let their pods continue without the operator: helm uninstall --no-hooks. To keep the release: helm rollback to its current revision",
		len(unfinished), shortened(unfinished))
}

// RefuseJobsOfMPIOperator returns an error that lists the jobs that mpi-operator has
// started and not finished. Trireme does not run them, and once mpi-operator is stopped
// their status would never change again.
func (s Setup) RefuseJobsOfMPIOperator(ctx context.Context) error {
	unfinished, err := s.unfinished(ctx, mpiJobList, func(one *unstructured.Unstructured) (bool, error) {
		mpiJob, err := asMPIJob(one)
		return err == nil && job.IsOfMPIOperator(mpiJob), err
	})
	if err != nil || len(unfinished) == 0 {
		return err
	}
	return fmt.Errorf("%d jobs that mpi-operator has started are not finished: %s. Trireme cannot continue them. "+
		"Let mpi-operator complete them beside Trireme: --set mpiJobs.manage=new. Or delete them, and create them again after the installation. "+
		"To install now, and let their pods continue without an operator: --set mpiJobs.unfinished=keep",
		len(unfinished), shortened(unfinished))
}

var (
	mpiJobList   = schema.GroupVersionKind{Group: "kubeflow.org", Version: "v2beta1", Kind: "MPIJobList"}
	trainJobList = schema.GroupVersionKind{Group: "kubeflow.org", Version: "v2alpha1", Kind: "TrainJobList"}
)

// jobsPage is the page size of lists of jobs. A job may have 1 MiB, and the setup Jobs have
// little memory.
const jobsPage = 10

// unfinished returns the unfinished jobs of a kind that are selected.
func (s Setup) unfinished(ctx context.Context, kind schema.GroupVersionKind, isSelected func(*unstructured.Unstructured) (bool, error)) (names []string, err error) {
	options := &client.ListOptions{Limit: jobsPage}
	for next := true; next; next = options.Continue != "" {
		var jobs unstructured.UnstructuredList
		jobs.SetGroupVersionKind(kind)
		err := s.Client.List(ctx, &jobs, options)
		if meta.IsNoMatchError(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
		for i := range jobs.Items {
			one := &jobs.Items[i]
			selected, err := isSelected(one)
			if err != nil {
				return nil, err
			}
			if selected && !isFinished(one) {
				names = append(names, fmt.Sprintf("%s %s", one.GetKind(), client.ObjectKeyFromObject(one)))
			}
		}
		options.Continue = jobs.GetContinue()
	}
	return names, nil
}

func asMPIJob(one *unstructured.Unstructured) (*v2beta1.MPIJob, error) {
	var mpiJob v2beta1.MPIJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object, &mpiJob); err != nil {
		return nil, fmt.Errorf("read MPIJob %s: %w", client.ObjectKeyFromObject(one), err)
	}
	return &mpiJob, nil
}

// shortened lists the first names.
func shortened(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// isFinished reads what both operators set in both kinds when a job succeeds or fails.
func isFinished(one *unstructured.Unstructured) bool {
	_, found, err := unstructured.NestedString(one.Object, "status", "completionTime")
	return found && err == nil
}

func parse(document []byte) (*unstructured.Unstructured, error) {
	var object unstructured.Unstructured
	if err := yaml.Unmarshal(document, &object.Object); err != nil {
		return nil, fmt.Errorf("read a manifest: %w", err)
	}
	return &object, nil
}

func (s Setup) report(format string, arguments ...any) {
	_, _ = fmt.Fprintf(s.Output, format+"\n", arguments...)
}
