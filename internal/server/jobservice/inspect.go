// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
	"github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/budget"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// pageWeight is what a call takes from the budget if it reads lists of unknown size from
// the API server: a user may make two such calls at a time.
const pageWeight = 4 << 20

// podsOf reads the pods of a job with the caller's permissions.
func podsOf(ctx context.Context, from client.Reader, view *jobview.View) ([]corev1.Pod, error) {
	if err := budget.Take(ctx, pageWeight); err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	options := []client.ListOption{client.InNamespace(view.GetNamespace()), client.MatchingLabels(plan.Selector(view.Identity()))}
	err := listPages(ctx, from, func() *corev1.PodList { return &corev1.PodList{} }, options, func(page *corev1.PodList) {
		for i := range page.Items {
			partial.TrimPod(&page.Items[i])
			pods = append(pods, page.Items[i])
		}
	})
	return pods, err
}

// listPages reads a list in pages, so that only one page is in memory.
func listPages[List client.ObjectList](ctx context.Context, from client.Reader, newList func() List, selected []client.ListOption, visit func(List)) error {
	next := ""
	for {
		page := newList()
		if err := from.List(ctx, page, append(selected, client.Limit(partial.PageSize), client.Continue(next))...); err != nil {
			return err
		}
		visit(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// Usage returns the resource usage of a job's pods.
func (s *Service) Usage(ctx context.Context, ref JobRef, window time.Duration) (*usage.Report, error) {
	view, err := s.view(ctx, ref)
	if err != nil {
		return nil, err
	}
	from := auth.CallerFrom(ctx).Client
	pods, err := podsOf(ctx, from, view)
	if err != nil {
		return nil, err
	}
	return s.Options.Usage(from).Of(ctx, pods, window)
}

func (s *Service) gatherer(ctx context.Context) *preflight.Gatherer {
	return &preflight.Gatherer{Reader: auth.CallerFrom(ctx).Client, Now: s.Clock.Now(), OperatorNamespace: s.OperatorNamespace}
}

// Diagnose finds why a job does not run, or why it failed.
func (s *Service) Diagnose(ctx context.Context, ref JobRef) (*preflight.Diagnosis, error) {
	view, err := s.view(ctx, ref)
	if err == nil {
		err = budget.Take(ctx, pageWeight)
	}
	if err != nil {
		return nil, err
	}
	diagnosis := preflight.DiagnosisOf(ctx, s.gatherer(ctx), view)
	return diagnosis, ctx.Err()
}

// Preflight checks whether a job can run or, without an object, whether jobs can run in a
// namespace.
func (s *Service) Preflight(ctx context.Context, kind *jobview.Kind, namespace string, object client.Object) (*preflight.PreflightReport, error) {
	if err := budget.Take(ctx, pageWeight); err != nil {
		return nil, err
	}
	writer := auth.CallerFrom(ctx).Client
	gatherer := s.gatherer(ctx)
	if object == nil {
		result := preflight.NewPreflightReport(gatherer.OfNamespace(ctx, writer, namespace))
		return result, ctx.Err()
	}
	if given := object.GetNamespace(); given != "" && given != namespace {
		return nil, apierror.Invalid("metadata.namespace", "is %q, but the job is checked for namespace %q; remove it, or set both to the same namespace", given, namespace)
	}
	submitted := submission(kind, object)
	submitted.SetNamespace(namespace)
	if submitted.GetName() == "" {
		submitted.SetName(submitted.GetGenerateName() + "xxxxx")
	}
	submitted.GetObjectKind().SetGroupVersionKind(kind.GVK)
	result := preflight.NewPreflightReport(gatherer.BeforeSubmission(ctx, writer, submitted))
	return result, ctx.Err()
}

// Quota returns the quotas of a namespace and their usage.
func (s *Service) Quota(ctx context.Context, namespace string) (*Quota, error) {
	var quotas corev1.ResourceQuotaList
	if err := auth.CallerFrom(ctx).Client.List(ctx, &quotas, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	result := &Quota{Namespace: namespace, Quotas: []QuotaUsage{}}
	for i := range quotas.Items {
		quota := &quotas.Items[i]
		result.Quotas = append(result.Quotas, QuotaUsage{Name: quota.Name, Hard: orEmpty(quota.Spec.Hard), Used: orEmpty(quota.Status.Used)})
	}
	for _, kind := range jobview.Kinds {
		active, err := s.active(ctx, kind, namespace)
		if err != nil {
			return nil, err
		}
		result.ActiveJobs += active
	}
	return result, nil
}

// orEmpty returns an empty list for nil, for JSON.
func orEmpty(list corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		return corev1.ResourceList{}
	}
	return list
}

// active returns the number of jobs in a namespace that have not finished, including those
// without a status.
func (s *Service) active(ctx context.Context, kind *jobview.Kind, namespace string) (count int, err error) {
	for status, counts := range map[training.Phase]int{"": 1, training.PhaseSucceeded: -1, training.PhaseFailed: -1} {
		page, err := s.List(ctx, kind, jobwatch.Query{Namespace: namespace, Status: string(status), Limit: 1})
		if err != nil {
			return 0, err
		}
		count += counts * page.Total
	}
	return count, nil
}
