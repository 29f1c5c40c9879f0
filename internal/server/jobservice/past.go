// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"fmt"
	"iter"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/kube/jobhistory"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/budget"
)

// History lists the records of finished jobs, for callers who may list the jobs.
func (s *Service) History(ctx context.Context, kind *jobview.Kind, namespace string, limit int) (*history.RecordList, error) {
	client, err := s.past(ctx, "list", kind, namespace)
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, kind.Kind, namespace, limit)
	return list, s.explainPast(ctx, JobRef{Kind: kind, Namespace: namespace}, err)
}

// Past returns a record, for callers who may list the jobs: the job itself may not exist.
func (s *Service) Past(ctx context.Context, ref JobRef) (*history.Record, error) {
	client, err := s.past(ctx, "list", ref.Kind, ref.Namespace)
	if err != nil {
		return nil, err
	}
	record, err := client.Record(ctx, ref.Kind.Kind, ref.Namespace, ref.Name)
	return record, s.explainPast(ctx, ref, err)
}

// PastLogs returns the log of a record, for callers who may also read the logs of pods.
func (s *Service) PastLogs(ctx context.Context, ref JobRef, rank *int) (iter.Seq2[history.Line, error], error) {
	if err := s.Guard.Allow(ctx, auth.CallerFrom(ctx), auth.Permission{Verb: "get", Resource: "pods", Subresource: "log", Namespace: ref.Namespace}); err != nil {
		return nil, err
	}
	client, err := s.past(ctx, "list", ref.Kind, ref.Namespace)
	if err != nil {
		return nil, err
	}
	lines, err := client.Log(ctx, ref.Kind.Kind, ref.Namespace, ref.Name, rank)
	return lines, s.explainPast(ctx, ref, err)
}

// DeletePast deletes a record, for callers who may delete the jobs of the namespace.
func (s *Service) DeletePast(ctx context.Context, ref JobRef) error {
	client, err := s.past(ctx, "delete", ref.Kind, ref.Namespace)
	if err != nil {
		return err
	}
	return s.explainPast(ctx, ref, client.Delete(ctx, ref.Kind.Kind, ref.Namespace, ref.Name))
}

// past checks a permission for all jobs of a namespace, because the history does not know
// the caller, and returns the client.
func (s *Service) past(ctx context.Context, verb string, kind *jobview.Kind, namespace string) (*jobhistory.Client, error) {
	if err := s.checkAllowed(ctx, verb, kind, namespace, ""); err != nil {
		return nil, err
	}
	if s.Options.History == nil {
		return nil, apierror.New(http.StatusNotImplemented, "NotImplemented", "This server has no history of finished jobs",
			"Ask a cluster administrator to install Trireme with history.enabled=true, and use the server in the cluster")
	}
	return s.Options.History, budget.Take(ctx, pageWeight)
}

// explainPast returns the error for the caller. Only the server's log has the cause of errors
// that the caller has not made.
func (s *Service) explainPast(ctx context.Context, ref JobRef, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return apierror.New(http.StatusNotFound, "NotFound", fmt.Sprintf("The history has no %s %q in namespace %q", ref.Kind.Kind, ref.Name, ref.Namespace),
			"List its records; a job has one a few seconds after it has finished")
	case apierrors.IsGone(err):
		return apierror.New(http.StatusGone, "Gone", fmt.Sprintf("The record of %s %q is corrupt, and cannot be read", ref.Kind.Kind, ref.Name), "Delete it, or ask a cluster administrator to restore it")
	}
	if ctx.Err() == nil {
		s.Log.Error("read the history", "namespace", ref.Namespace, "name", ref.Name, "error", err)
	}
	return apierror.New(http.StatusServiceUnavailable, "ServiceUnavailable", "The history of finished jobs cannot be read; the server log has the cause", "Retry in a few seconds")
}
