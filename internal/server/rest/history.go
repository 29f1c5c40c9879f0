// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"iter"
	"math"
	"net/http"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/stream"
)

var (
	historyParameters = []parameter{{name: "limit", kind: "integer", min: 1, max: history.MaxList, defaultValue: "100", description: "Maximum number of records"}}
	pastLogParameters = []parameter{{name: "rank", kind: "integer", min: 0, max: math.MaxInt32, description: "Only return the lines of this MPI rank; the output must be tagged"}}
)

// historyRoutes returns the routes of the records of finished jobs. Their name is the name
// of a job, for the newest record with it, or the UID of a job.
func historyRoutes() (routes []*route) {
	for _, kind := range jobview.Kinds {
		all := namespaced + "/history/" + kind.Plural
		one := all + "/{name}"
		name := "Past" + string(kind.Kind)
		for _, route := range []*route{
			{method: http.MethodGet, path: all, id: "list" + name + "s", summary: "List the records of finished jobs, the newest first", success: http.StatusOK, response: history.RecordList{},
				parameters: historyParameters, errors: []int{501}, handle: (*API).history},
			{method: http.MethodGet, path: one, id: "get" + name, summary: "Get the record of a finished job by its name or its UID: spec, status, events, metrics over time", success: http.StatusOK, response: history.Record{},
				errors: []int{404, 410, 501}, handle: (*API).past},
			{method: http.MethodGet, path: one + "/logs", id: "get" + name + "Logs", summary: "Get the log of a finished job, with the lines of all its ranks", success: http.StatusOK, response: plainText{},
				parameters: pastLogParameters, errors: []int{404, 410, 501}, stream: (*API).pastLogs},
			{method: http.MethodDelete, path: one, id: "delete" + name, summary: "Delete the record of a finished job", success: http.StatusNoContent,
				errors: []int{404, 501}, handle: (*API).deletePast},
		} {
			route.kind = kind
			routes = append(routes, route)
		}
	}
	return routes
}

func (a *API) history(in *input) (any, error) {
	return a.service.History(in.context(), in.route.kind, in.namespace(), int(in.query.numberOr("limit", defaultLimit)))
}

func (a *API) past(in *input) (any, error) { return a.service.Past(in.context(), in.job()) }

func (a *API) deletePast(in *input) (any, error) {
	return nil, a.service.DeletePast(in.context(), in.job())
}

func (a *API) pastLogs(writer http.ResponseWriter, in *input) {
	var rank *int
	if number := in.query.number("rank"); number != nil {
		rank = new(int(*number))
	}
	ctx, stop := context.WithCancel(in.context())
	defer stop()
	lines, err := a.service.PastLogs(ctx, in.job(), rank)
	if err != nil {
		a.fail(writer, in.Request, err)
		return
	}
	if stream.IsRequested(in.Request) {
		a.sendStream(writer, in, stopWithClient(stop, logMessages(pastLines(lines))))
		return
	}
	a.writeLines(writer, in, "text/plain; charset=utf-8", pastLines(lines), asText)
}

// pastLines converts lines of the history, which are those of launchers.
func pastLines(lines iter.Seq2[history.Line, error]) iter.Seq2[joblog.Line, error] {
	return func(yield func(joblog.Line, error) bool) {
		for line, err := range lines {
			converted := joblog.Line{Pod: line.Pod, Role: training.RoleLauncher, Worker: -1, Rank: joblog.NoRank, Time: line.Time, Text: line.Text}
			if line.Rank != nil {
				converted.Rank = *line.Rank
			}
			if !yield(converted, err) {
				return
			}
		}
	}
}
