// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"iter"
	"net/http"
	"sync"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// WatchAll streams the changes of the jobs of both kinds. Without a namespace, it streams
// those of all namespaces in which the caller may watch jobs. Since has the resource
// version of the last event of each kind that the client received.
func (s *Service) WatchAll(ctx context.Context, namespace string, since map[*jobview.Kind]string) (iter.Seq2[*jobwatch.Event, error], error) {
	// The watches end when the client stops to read them, not only with its request.
	ctx, stop := context.WithCancel(ctx)
	watches := make([]iter.Seq2[*jobwatch.Event, error], 0, len(jobview.Kinds))
	for _, kind := range jobview.Kinds {
		watch := jobwatch.Watch{Namespace: namespace, Since: since[kind]}
		if err := watch.Validate(); err != nil {
			stop()
			return nil, err
		}
		err := s.checkAllowed(ctx, "watch", kind, namespace, "")
		if err != nil && (namespace != "" || apierror.From(err).Code != http.StatusForbidden) {
			stop()
			return nil, err
		}
		events := s.Jobs(auth.CallerFrom(ctx)).Watch(ctx, kind, watch)
		if err != nil {
			events = s.onlyAllowed(ctx, kind, events)
		}
		watches = append(watches, events)
	}
	return merged(ctx, stop, watches), nil
}

// onlyAllowed omits the events of namespaces in which the caller may not watch jobs. The
// guard caches its answers, so a check for each event is cheap, and a permission that is
// removed ends the events of its namespace.
func (s *Service) onlyAllowed(ctx context.Context, kind *jobview.Kind, events iter.Seq2[*jobwatch.Event, error]) iter.Seq2[*jobwatch.Event, error] {
	return func(yield func(*jobwatch.Event, error) bool) {
		for event, err := range events {
			if err == nil && event.Row != nil {
				refused := s.checkAllowed(ctx, "watch", kind, event.Row.Namespace, "")
				if refused != nil && apierror.From(refused).Code == http.StatusForbidden {
					continue
				}
				err = refused
			}
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// merged sends the events of several watches, in order within each of them. It ends with
// the first error. stop ends the watches.
func merged(ctx context.Context, stop context.CancelFunc, watches []iter.Seq2[*jobwatch.Event, error]) iter.Seq2[*jobwatch.Event, error] {
	type element struct {
		event *jobwatch.Event
		err   error
	}
	return func(yield func(*jobwatch.Event, error) bool) {
		elements := make(chan element)
		var reading sync.WaitGroup
		defer reading.Wait()
		defer stop()
		for _, events := range watches {
			reading.Go(func() {
				for event, err := range events {
					select {
					case elements <- element{event, err}:
					case <-ctx.Done():
						return
					}
				}
			})
		}
		for {
			select {
			case next := <-elements:
				if !yield(next.event, next.err) || next.err != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}
