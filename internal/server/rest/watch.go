// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"iter"
	"net/http"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
	"github.com/trireme-mpi/trireme/internal/server/stream"
)

// watch streams the changes of jobs.
func (a *API) watch(writer http.ResponseWriter, in *input) {
	watch := jobwatch.Watch{Namespace: in.namespace(), Name: in.query.text("name"), Since: in.query.text("resourceVersion")}
	// Browsers resume server-sent events by themselves, with this header.
	if last := in.Header.Get("Last-Event-ID"); last != "" {
		watch.Since = last
	}
	if err := checkName("name", watch.Name); err != nil {
		a.fail(writer, in.Request, err)
		return
	}
	a.sendEvents(writer, in, func(ctx context.Context) (iter.Seq2[*jobwatch.Event, error], error) {
		return a.service.Watch(ctx, in.route.kind, watch)
	}, func(event *jobwatch.Event) string { return event.ResourceVersion })
}

// watchAll streams the changes of jobs of both kinds. Its events have no ID: one version
// is not enough to resume.
func (a *API) watchAll(writer http.ResponseWriter, in *input) {
	since := map[*jobview.Kind]string{
		jobview.TrainJobs: in.query.text("trainJobVersion"), jobview.MPIJobs: in.query.text("mpiJobVersion"),
	}
	a.sendEvents(writer, in, func(ctx context.Context) (iter.Seq2[*jobwatch.Event, error], error) {
		return a.service.WatchAll(ctx, in.namespace(), since)
	}, func(*jobwatch.Event) string { return "" })
}

// sendEvents streams events, each with an ID to resume with.
func (a *API) sendEvents(writer http.ResponseWriter, in *input, start func(context.Context) (iter.Seq2[*jobwatch.Event, error], error), id func(*jobwatch.Event) string) {
	ctx, stop := context.WithCancel(in.context())
	defer stop()
	events, err := start(ctx)
	if err != nil {
		a.fail(writer, in.Request, err)
		return
	}
	if !stream.IsRequested(in.Request) {
		a.fail(writer, in.Request, apierror.New(http.StatusNotAcceptable, "NotAcceptable", "A watch needs a WebSocket or server-sent events", "Send Accept: text/event-stream, or Upgrade: websocket"))
		return
	}
	a.sendStream(writer, in, stopWithClient(stop, eventMessages(events, id)))
}

// stopWithClient stops producing messages when the client disconnects.
func stopWithClient(stop context.CancelFunc, messages iter.Seq2[stream.Message, error]) func(context.Context) iter.Seq2[stream.Message, error] {
	return func(clientCtx context.Context) iter.Seq2[stream.Message, error] {
		context.AfterFunc(clientCtx, stop)
		return messages
	}
}

func eventMessages(events iter.Seq2[*jobwatch.Event, error], id func(*jobwatch.Event) string) iter.Seq2[stream.Message, error] {
	return func(yield func(stream.Message, error) bool) {
		for event, err := range events {
			if err != nil {
				yield(stream.Message{}, err)
				return
			}
			if !yield(stream.Message{ID: id(event), JSON: event.JSON}, nil) {
				return
			}
		}
	}
}
