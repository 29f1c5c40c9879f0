// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"net/http"

	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/kube/jobreports"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/budget"
)

// Ranks returns all ranks of a job. The operator does not know the caller, so the caller's
// permission to get the job is checked first.
func (s *Service) Ranks(ctx context.Context, ref JobRef) (*reports.JobRanks, error) {
	return readReports(ctx, s, ref, (*jobreports.Client).Ranks)
}

// Curves returns the metrics of a job over time.
func (s *Service) Curves(ctx context.Context, ref JobRef) (*reports.JobCurves, error) {
	return readReports(ctx, s, ref, (*jobreports.Client).Curves)
}

func readReports[T any](ctx context.Context, s *Service, ref JobRef, read func(*jobreports.Client, context.Context, job.Kind, string, string) (*T, error)) (*T, error) {
	if _, err := s.view(ctx, ref); err != nil {
		return nil, err
	}
	if s.Reports == nil {
		return nil, apierror.New(http.StatusNotImplemented, "NotImplemented", "This server has no connection to the operator's port for reports",
			"Use the server in the cluster, started with --reports-url")
	}
	if err := budget.Take(ctx, pageWeight); err != nil {
		return nil, err
	}
	found, err := read(s.Reports, ctx, ref.Kind.Kind, ref.Namespace, ref.Name)
	if err != nil {
		if ctx.Err() == nil {
			s.Log.Error("read the reports of a job", "namespace", ref.Namespace, "name", ref.Name, "error", err)
		}
		return nil, apierror.New(http.StatusServiceUnavailable, "ServiceUnavailable", "The operator cannot be asked for the reports of the job; the server log has the cause", "Retry in a few seconds")
	}
	return found, nil
}
