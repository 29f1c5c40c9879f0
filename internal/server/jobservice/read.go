// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"fmt"
	"iter"
	"net/http"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// checkAllowed checks a permission for jobs of a kind. Most callers have it for a whole
// namespace, so that is checked first, to avoid a review per job.
func (s *Service) checkAllowed(ctx context.Context, verb string, kind *jobview.Kind, namespace, name string) error {
	permission := auth.Permission{Verb: verb, Group: kind.GVK.Group, Resource: kind.Plural, Namespace: namespace}
	err := s.Guard.Allow(ctx, auth.CallerFrom(ctx), permission)
	if err == nil || name == "" || apierror.From(err).Code != http.StatusForbidden {
		return err
	}
	permission.Name = name
	return s.Guard.Allow(ctx, auth.CallerFrom(ctx), permission)
}

// Get returns a job. A new job may not be in the cache yet, so the API server is asked
// before "not found" is returned.
func (s *Service) Get(ctx context.Context, job JobRef) (client.Object, error) {
	view, err := s.view(ctx, job)
	if err != nil {
		return nil, err
	}
	return view.Object, nil
}

// view returns a copy of a job that the caller may read.
func (s *Service) view(ctx context.Context, job JobRef) (*jobview.View, error) {
	if err := s.checkAllowed(ctx, "get", job.Kind, job.Namespace, job.Name); err != nil {
		return nil, err
	}
	caller := auth.CallerFrom(ctx)
	object, err := s.Jobs(caller).Get(ctx, job.Kind, job.Namespace, job.Name)
	if err != nil && apierror.From(err).Code == http.StatusNotFound {
		view, err := readLive(ctx, job)
		if err != nil {
			return nil, err
		}
		return jobview.Of(forClient(job.Kind, view.Object)), nil
	}
	if err != nil {
		return nil, err
	}
	return jobview.Of(forClient(job.Kind, object.DeepCopyObject().(client.Object))), nil
}

// List lists the jobs of a namespace or, without one, of all namespaces in which the
// caller may list jobs.
func (s *Service) List(ctx context.Context, kind *jobview.Kind, query jobwatch.Query) (*jobwatch.Page, error) {
	err := s.checkAllowed(ctx, "list", kind, query.Namespace, "")
	if err != nil && (query.Namespace != "" || apierror.From(err).Code != http.StatusForbidden) {
		return nil, err
	}
	if err != nil {
		return s.listAllowed(ctx, kind, query)
	}
	return s.Jobs(auth.CallerFrom(ctx)).List(ctx, kind, query)
}

// listAllowed lists the jobs of the namespaces that the caller may list. The source
// collects the unknown namespaces, which are checked between two lists: a check must not
// run while the source is locked.
func (s *Service) listAllowed(ctx context.Context, kind *jobview.Kind, query jobwatch.Query) (*jobwatch.Page, error) {
	allowed := map[string]bool{}
	for {
		var unknown []string
		query.Allowed = func(namespace string) bool {
			if _, known := allowed[namespace]; !known {
				unknown = append(unknown, namespace)
			}
			return allowed[namespace]
		}
		page, err := s.Jobs(auth.CallerFrom(ctx)).List(ctx, kind, query)
		if err != nil || len(unknown) == 0 {
			return page, err
		}
		if err := s.checkNamespaces(ctx, kind, unknown, allowed); err != nil {
			return nil, err
		}
	}
}

// parallelChecks is the number of namespaces that are checked at the same time.
const parallelChecks = 10

// checkNamespaces checks in which namespaces the caller may list jobs. If a check fails
// with an error, so does the list: it must not be incomplete without an error.
func (s *Service) checkNamespaces(ctx context.Context, kind *jobview.Kind, namespaces []string, allowed map[string]bool) error {
	answers := make([]error, len(namespaces))
	var asking errgroup.Group
	asking.SetLimit(parallelChecks)
	for i, namespace := range namespaces {
		asking.Go(func() error {
			answers[i] = s.checkAllowed(ctx, "list", kind, namespace, "")
			if answers[i] != nil && apierror.From(answers[i]).Code != http.StatusForbidden {
				return answers[i]
			}
			return nil
		})
	}
	err := asking.Wait()
	for i, namespace := range namespaces {
		allowed[namespace] = answers[i] == nil
	}
	return err
}

// Watch streams the changes of the jobs of a namespace, or of one job.
func (s *Service) Watch(ctx context.Context, kind *jobview.Kind, watch jobwatch.Watch) (iter.Seq2[*jobwatch.Event, error], error) {
	if err := s.checkAllowed(ctx, "watch", kind, watch.Namespace, watch.Name); err != nil {
		return nil, err
	}
	if err := watch.Validate(); err != nil {
		return nil, err
	}
	return s.Jobs(auth.CallerFrom(ctx)).Watch(ctx, kind, watch), nil
}

// Events returns the events of a job and the warnings of its pods, oldest first.
func (s *Service) Events(ctx context.Context, job JobRef) ([]Event, error) {
	view, err := s.view(ctx, job)
	if err != nil {
		return nil, err
	}
	from := auth.CallerFrom(ctx).Client
	pods, err := podsOf(ctx, from, view)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range pods {
		names[pods[i].Name] = true
	}
	list, err := jobview.Events(ctx, from, view, names)
	if err != nil {
		return nil, err
	}
	events := make([]Event, 0, len(list))
	for i := range list {
		event := &list[i]
		source := event.Source.Component
		if source == "" {
			source = event.ReportingController
		}
		events = append(events, Event{
			Type: event.Type, Reason: event.Reason, Message: event.Message, Timestamp: jobview.EventTime(event), Source: source,
			Object: fmt.Sprintf("%s/%s", event.InvolvedObject.Kind, event.InvolvedObject.Name), Count: max(event.Count, 1),
		})
	}
	return events, nil
}
