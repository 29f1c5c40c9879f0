// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/budget"
)

// fieldOwner is the field manager of changes.
const fieldOwner = client.FieldOwner("trireme-server")

// Create creates a job with the caller's own permissions.
func (s *Service) Create(ctx context.Context, kind *jobview.Kind, namespace string, object client.Object, dryRun bool) (client.Object, error) {
	if given := object.GetNamespace(); given != "" && given != namespace {
		return nil, apierror.Invalid("metadata.namespace", "is %q, but the job is created in namespace %q; remove it, or set both to the same namespace", given, namespace)
	}
	if object.GetName() == "" && object.GetGenerateName() == "" {
		return nil, apierror.Invalid("metadata.name", "is required: set metadata.name or metadata.generateName")
	}
	// The stored object is read into the same variable: a status that a client sent must
	// not look as if it were stored.
	submitted := submission(kind, object)
	submitted.SetNamespace(namespace)
	options := []client.CreateOption{fieldOwner}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	if err := auth.CallerFrom(ctx).Client.Create(ctx, submitted, options...); err != nil {
		return nil, err
	}
	auth.RecordFrom(ctx).Name = submitted.GetName()
	return forClient(kind, submitted), nil
}

// forClient prepares an object for clients.
func forClient(kind *jobview.Kind, object client.Object) client.Object {
	object.GetObjectKind().SetGroupVersionKind(kind.GVK)
	object.SetManagedFields(nil)
	return object
}

// Delete deletes a job and, by owner references, its pods and other objects. Kubernetes
// does not pass a grace period from a job to its pods, so with a grace period the pods are
// deleted first, with the caller's own permissions. The dry run before keeps the pods of a
// job that may not be deleted.
func (s *Service) Delete(ctx context.Context, ref JobRef, options DeleteOptions) error {
	from := auth.CallerFrom(ctx).Client
	object := ref.Kind.NewObject()
	object.SetNamespace(ref.Namespace)
	object.SetName(ref.Name)
	if options.GracePeriodSeconds != nil {
		if err := from.Delete(ctx, object.DeepCopyObject().(client.Object), deletion(true)...); err != nil {
			return err
		}
		if err := deletePods(ctx, from, ref, options); err != nil {
			return err
		}
	}
	return from.Delete(ctx, object, deletion(options.DryRun)...)
}

// deletePods deletes the pods of a job with a grace period.
func deletePods(ctx context.Context, from client.Writer, ref JobRef, options DeleteOptions) error {
	selected := []client.DeleteAllOfOption{
		client.InNamespace(ref.Namespace), client.MatchingLabels(plan.Selector(&job.Job{Kind: ref.Kind.Kind, Name: ref.Name})), client.GracePeriodSeconds(*options.GracePeriodSeconds),
	}
	if options.DryRun {
		selected = append(selected, client.DryRunAll)
	}
	return from.DeleteAllOf(ctx, &corev1.Pod{}, selected...)
}

func deletion(dryRun bool) []client.DeleteOption {
	options := []client.DeleteOption{client.PropagationPolicy("Background")}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	return options
}

// readLive reads a job from the API server with the caller's own permissions.
func readLive(ctx context.Context, job JobRef) (*jobview.View, error) {
	if err := budget.Take(ctx, budget.LargestObject); err != nil {
		return nil, err
	}
	return job.Kind.Get(ctx, auth.CallerFrom(ctx).Client, job.Namespace, job.Name)
}

// Suspend suspends or resumes a job.
func (s *Service) Suspend(ctx context.Context, job JobRef, suspend bool) (client.Object, error) {
	caller := auth.CallerFrom(ctx)
	view, err := readLive(ctx, job)
	if err != nil {
		return nil, err
	}
	if view.Finished() {
		return nil, apierror.New(http.StatusConflict, "Finished", fmt.Sprintf("%s %q has finished (%s); nothing was changed", job.Kind.Kind, job.Name, view.Phase),
			"Restart it, or create it again under another name")
	}
	object := job.Kind.NewObject()
	object.SetNamespace(job.Namespace)
	object.SetName(job.Name)
	if err := caller.Client.Patch(ctx, object, job.Kind.Suspension(suspend), fieldOwner); err != nil {
		return nil, err
	}
	return forClient(job.Kind, object), nil
}

// finishTimeout is the timeout of the last steps of a change, after a client has
// disconnected.
const finishTimeout = 10 * time.Second

// Restart creates a copy of a failed job, then deletes the failed job: if a step fails, at
// least one of them exists.
func (s *Service) Restart(ctx context.Context, job JobRef) (client.Object, error) {
	caller := auth.CallerFrom(ctx)
	view, err := readLive(ctx, job)
	if err != nil {
		return nil, err
	}
	if view.Phase != training.PhaseFailed {
		return nil, apierror.New(http.StatusBadRequest, "NotFailed", fmt.Sprintf("%s cannot be restarted (must be in Failed state)", job.Kind.Kind),
			fmt.Sprintf("The job is %s: delete and recreate it, or create another job", view.State()))
	}
	precondition := client.Preconditions{UID: new(view.GetUID())}
	// Check that the caller may delete the job before anything is created.
	if err := caller.Client.Delete(ctx, view.Object, append(deletion(true), precondition)...); err != nil {
		return nil, err
	}
	retry := s.retryJob(view)
	if err := caller.Client.Create(ctx, retry, fieldOwner); err != nil {
		return nil, err
	}
	auth.RecordFrom(ctx).Name = retry.GetName()
	// A client that disconnects now would leave both jobs.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer stop()
	if err := caller.Client.Delete(ctx, view.Object, append(deletion(false), precondition)...); client.IgnoreNotFound(err) != nil {
		apiErr := *apierror.From(err)
		apiErr.Message = fmt.Sprintf("%s %q was created, but %q could not be deleted: %s", job.Kind.Kind, retry.GetName(), job.Name, apiErr.Message)
		apiErr.Suggestions = append(apiErr.Suggestions, fmt.Sprintf("Delete %q", job.Name))
		return nil, &apiErr
	}
	return forClient(job.Kind, retry), nil
}

// retryJob returns a copy of a failed job, to be created.
func (s *Service) retryJob(view *jobview.View) client.Object {
	object := view.Kind.NewObject()
	copyInto(view.Object, object)
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	// These belong to the failed job, and are set again.
	for _, key := range []string{training.LabelJobName, training.LabelJobType} {
		delete(labels, key)
	}
	for _, key := range []string{training.AnnotationCreatedBy, "kubectl.kubernetes.io/last-applied-configuration"} {
		delete(annotations, key)
	}
	object.SetNamespace(view.GetNamespace())
	j := view.Identity()
	object.SetName(j.Kind.RetryName(j.Name, j.Worker.Replicas, s.Clock.Now().Unix()))
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	return object
}
