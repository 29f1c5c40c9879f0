// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"iter"
	"net/http"

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
	ctx, stop := context.WithCancel(in.context())
	defer stop()
	events, err := a.service.Watch(ctx, in.route.kind, watch)
	if err != nil {
		a.fail(writer, in.Request, err)
		return
	}
	if !stream.IsRequested(in.Request) {
		a.fail(writer, in.Request, apierror.New(http.StatusNotAcceptable, "NotAcceptable", "A watch needs a WebSocket or server-sent events", "Send Accept: text/event-stream, or Upgrade: websocket"))
		return
	}
	a.sendStream(writer, in, stopWithClient(stop, eventMessages(events)))
}

// stopWithClient stops producing messages when the client disconnects.
func stopWithClient(stop context.CancelFunc, messages iter.Seq2[stream.Message, error]) func(context.Context) iter.Seq2[stream.Message, error] {
	return func(clientCtx context.Context) iter.Seq2[stream.Message, error] {
		context.AfterFunc(clientCtx, stop)
		return messages
	}
}

func eventMessages(events iter.Seq2[*jobwatch.Event, error]) iter.Seq2[stream.Message, error] {
	return func(yield func(stream.Message, error) bool) {
		for event, err := range events {
			if err != nil {
				yield(stream.Message{}, err)
				return
			}
			if !yield(stream.Message{ID: event.ResourceVersion, JSON: event.JSON}, nil) {
				return
			}
		}
	}
}
