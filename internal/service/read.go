package service

import (
	"context"
	"fmt"
	"iter"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/access"
	"github.com/trireme-mpi/trireme/internal/jobview"
	"github.com/trireme-mpi/trireme/internal/live"
	"github.com/trireme-mpi/trireme/internal/problem"
)

// may asks whether the caller has a right to jobs of a kind. Most have it for all jobs
// of a namespace, and then nobody has to be asked about each of them.
func (service *Service) may(ctx context.Context, verb string, kind *jobview.Kind, namespace, name string) error {
	rights := access.Rights{Verb: verb, Group: kind.GVK.Group, Resource: kind.Plural, Namespace: namespace}
	err := service.Guard.Allow(ctx, access.CallerFrom(ctx), rights)
	if err == nil || name == "" || problem.From(err).Code != http.StatusForbidden {
		return err
	}
	rights.Name = name
	return service.Guard.Allow(ctx, access.CallerFrom(ctx), rights)
}

// Get is a job. What was created a moment ago may not be in the memory yet: it is
// asked for before it is said not to be there.
func (service *Service) Get(ctx context.Context, job JobRef) (client.Object, error) {
	seen, err := service.view(ctx, job)
	if err != nil {
		return nil, err
	}
	return seen.Object, nil
}

// view is a job that the caller may read, as a copy.
func (service *Service) view(ctx context.Context, job JobRef) (*jobview.View, error) {
	if err := service.may(ctx, "get", job.Kind, job.Namespace, job.Name); err != nil {
		return nil, err
	}
	caller := access.CallerFrom(ctx)
	found, err := service.Jobs(caller).Get(ctx, job.Kind, job.Namespace, job.Name)
	if err != nil && problem.From(err).Code == http.StatusNotFound {
		seen, err := job.Kind.Get(ctx, caller.Client, job.Namespace, job.Name)
		return seen, err
	}
	if err != nil {
		return nil, err
	}
	object := found.DeepCopyObject().(client.Object)
	object.GetObjectKind().SetGroupVersionKind(job.Kind.GVK)
	return jobview.Of(object), nil
}

// List is the jobs of a namespace or, without one, of all that the caller may list.
func (service *Service) List(ctx context.Context, kind *jobview.Kind, query live.Query) (*live.Page, error) {
	err := service.may(ctx, "list", kind, query.Namespace, "")
	if err != nil && (query.Namespace != "" || problem.From(err).Code != http.StatusForbidden) {
		return nil, err
	}
	if err != nil {
		answers := map[string]bool{}
		query.Allowed = func(namespace string) bool {
			allowed, asked := answers[namespace]
			if !asked {
				allowed = service.may(ctx, "list", kind, namespace, "") == nil
				answers[namespace] = allowed
			}
			return allowed
		}
	}
	return service.Jobs(access.CallerFrom(ctx)).List(ctx, kind, query)
}

// Watch is what becomes of the jobs of a namespace, or of one job.
func (service *Service) Watch(ctx context.Context, kind *jobview.Kind, watch live.Watch) (iter.Seq2[*live.Event, error], error) {
	if err := service.may(ctx, "watch", kind, watch.Namespace, watch.Name); err != nil {
		return nil, err
	}
	return service.Jobs(access.CallerFrom(ctx)).Watch(ctx, kind, watch), nil
}

// Events are those of a job, and the warnings of its pods, oldest first.
func (service *Service) Events(ctx context.Context, job JobRef) ([]Event, error) {
	seen, err := service.view(ctx, job)
	if err != nil {
		return nil, err
	}
	from := access.CallerFrom(ctx).Client
	pods, err := podsOf(ctx, from, seen)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range pods {
		names[pods[i].Name] = true
	}
	found, err := jobview.Events(ctx, from, seen, names)
	if err != nil {
		return nil, err
	}
	events := make([]Event, 0, len(found))
	for i := range found {
		event := &found[i]
		source := event.Source.Component
		if source == "" {
			source = event.ReportingController
		}
		events = append(events, Event{
			Type: event.Type, Reason: event.Reason, Message: event.Message, Timestamp: jobview.Happened(event), Source: source,
			Object: fmt.Sprintf("%s/%s", event.InvolvedObject.Kind, event.InvolvedObject.Name), Count: max(event.Count, 1),
		})
	}
	return events, nil
}
