// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// Logs returns the log lines of a job's pods, sorted by time, without secrets.
func (s *Service) Logs(ctx context.Context, job JobRef, options LogOptions) (iter.Seq2[joblog.Line, error], error) {
	view, err := s.view(ctx, job)
	if err != nil {
		return nil, err
	}
	// Kubernetes checks it for each pod; but a stream without permission must not start.
	caller := auth.CallerFrom(ctx)
	if err := s.Guard.Allow(ctx, caller, auth.Permission{Verb: "get", Resource: "pods", Subresource: "log", Namespace: job.Namespace}); err != nil {
		return nil, err
	}
	j := view.Identity()
	// The logs of all workers are read, independent of the current number of workers.
	j.Worker.Replicas = math.MaxInt32
	source, selected := joblog.FromCluster(caller.Cluster.CoreV1(), j), selection(ctx, view, options)
	return func(yield func(joblog.Line, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		reading := joblog.Options{Follow: options.Follow, Previous: options.Previous, Tail: options.Tail, Since: options.Since}
		if options.Follow {
			reading.Ended = s.finished(ctx, job)
		}
		for line, err := range joblog.Redacted(joblog.Stream(ctx, source, selected, reading)) {
			if !yield(line, explainLogError(view, err)) || err != nil {
				return
			}
		}
	}, nil
}

// selection returns which pods and containers to read.
func selection(ctx context.Context, view *jobview.View, options LogOptions) joblog.Selection {
	result := joblog.Selection{Worker: options.Worker, Container: options.Container}
	switch {
	case options.Role != "":
		result.Roles = []string{options.Role}
	case options.Worker != nil:
		result.Roles = []string{training.RoleWorker}
	}
	if view.GetAnnotations()[training.AnnotationTagOutput] == "true" {
		result.Tags = view.Tags(ctx, auth.CallerFrom(ctx).Client)
	}
	return result
}

// finished returns a channel that is closed when the job has finished, is deleted, or can
// no longer be watched.
func (s *Service) finished(ctx context.Context, job JobRef) <-chan struct{} {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		watch, exists := jobwatch.Watch{Namespace: job.Namespace, Name: job.Name}, false
		for event, err := range s.Jobs(auth.CallerFrom(ctx)).Watch(ctx, job.Kind, watch) {
			switch {
			case err != nil, event.Type == jobwatch.Deleted:
				return
			case event.Object != nil && jobview.Of(event.Object).Finished():
				return
			case event.Type == jobwatch.Synced && !exists && s.isDeleted(ctx, job):
				return
			}
			exists = true
		}
	}()
	return finished
}

// isDeleted tells whether a job was deleted before the watch started. A new job may not be
// in the cache yet.
func (s *Service) isDeleted(ctx context.Context, job JobRef) bool {
	_, err := job.Kind.Get(ctx, auth.CallerFrom(ctx).Client, job.Namespace, job.Name)
	return apierrors.IsNotFound(err)
}

// explainLogError explains why there are no logs.
func explainLogError(view *jobview.View, err error) error {
	var none *joblog.NoPodsError
	var waiting *joblog.NotStartedError
	var container *joblog.UnknownContainerError
	var before *joblog.NoPreviousError
	switch {
	case errors.As(err, &none) && view.Finished():
		return apierror.New(http.StatusNotFound, "PodsGone", fmt.Sprintf("The pods of %s %q are deleted, and their logs with them", view.Kind.Kind, view.GetName()),
			"Set cleanPodPolicy to keep the pods of finished jobs")
	case errors.As(err, &none):
		return apierror.New(http.StatusNotFound, "NoPods", fmt.Sprintf("%s %q does not have these pods yet: %s", view.Kind.Kind, view.GetName(), view.Explanation()), "Wait for them with follow=true")
	case errors.As(err, &waiting):
		return apierror.New(http.StatusNotFound, "NotStarted", fmt.Sprintf("%s %q has printed nothing yet: %s", view.Kind.Kind, view.GetName(), strings.Join(waiting.Reasons, "; ")), "Wait for it with follow=true")
	case errors.As(err, &container):
		return apierror.New(http.StatusNotFound, "NotFound", err.Error(), "Use one of "+strings.Join(container.Known, ", "))
	case errors.As(err, &before):
		return apierror.New(http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q has no previous containers", view.Kind.Kind, view.GetName()), "Remove the parameter previous")
	default:
		return err
	}
}
