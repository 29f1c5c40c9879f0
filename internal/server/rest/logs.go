// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/budget"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/stream"
)

// readLogs responds with logs, in the form that the client requests: a stream of messages,
// lines of text, or one document.
func (a *API) readLogs(writer http.ResponseWriter, in *input) {
	options, err := a.logOptions(in)
	if err != nil {
		a.fail(writer, in.Request, err)
		return
	}
	ctx, stop := context.WithCancel(in.context())
	defer stop()
	lines, err := a.service.Logs(ctx, in.job(), options)
	if err != nil {
		a.fail(writer, in.Request, err)
		return
	}
	_, isText := in.route.response.(plainText)
	switch {
	case options.Follow && stream.IsRequested(in.Request):
		a.sendStream(writer, in, stopWithClient(stop, logMessages(lines)))
	case isText:
		a.writeLines(writer, in, "text/plain; charset=utf-8", lines, asText)
	case options.Follow:
		a.writeLines(writer, in, "application/x-ndjson", lines, func(line joblog.Line) []byte { return append(encodeLine(line), '\n') })
	default:
		a.collectLines(writer, in, lines)
	}
}

// logOptions returns which lines a request selects.
func (a *API) logOptions(in *input) (jobservice.LogOptions, error) {
	options := jobservice.LogOptions{
		Container: in.query.text("container"), Follow: in.query.flag("follow"), Previous: in.query.flag("previous"),
		Tail: new(in.query.numberOr("tailLines", defaultTail)), Since: in.query.time("since"),
	}
	if seconds := in.query.number("sinceSeconds"); seconds != nil {
		options.Since = a.Clock.Now().Add(-time.Duration(*seconds) * time.Second)
	}
	if in.query.text("since") != "" && in.query.text("sinceSeconds") != "" {
		return options, apierror.Invalid("sinceSeconds", "cannot be combined with since")
	}
	if options.Follow && options.Previous {
		return options, apierror.Invalid("previous", "cannot be combined with follow: previous containers have finished")
	}
	switch index := in.PathValue("index"); {
	case strings.HasSuffix(in.route.path, "/logs/launcher"):
		options.Role = training.RoleLauncher
	case index != "":
		number, err := strconv.ParseInt(index, 10, 32)
		if err != nil || number < 0 {
			return options, apierror.New(http.StatusBadRequest, "BadRequest", "invalid worker index: "+index, "Workers are numbered from 0")
		}
		options.Worker = new(int32(number))
	default:
		return options, in.choosePods(&options)
	}
	return options, nil
}

func (in *input) choosePods(options *jobservice.LogOptions) error {
	role := in.query.text("podType")
	if role != "all" {
		options.Role = role
	}
	if index := in.query.number("podIndex"); index != nil {
		if role == training.RoleLauncher {
			return apierror.Invalid("podIndex", "cannot be combined with podType=launcher: only workers have an index")
		}
		options.Role, options.Worker = training.RoleWorker, new(int32(*index))
	}
	return nil
}

func asLogLine(line joblog.Line) logLine {
	result := logLine{PodName: line.Pod, PodType: line.Role, Container: line.Container, Timestamp: line.Time, Message: line.Text, Continues: line.Continues}
	if line.Role == training.RoleWorker {
		result.Index = &line.Worker
	}
	if line.Rank != joblog.NoRank {
		result.Rank = &line.Rank
	}
	return result
}

// asText returns a line as the program printed it.
func asText(line joblog.Line) []byte {
	if line.Continues {
		return []byte(line.Text)
	}
	return []byte(line.Text + "\n")
}

func encodeLine(line joblog.Line) []byte {
	encoded, err := json.Marshal(asLogLine(line))
	if err != nil {
		panic(err) // texts, numbers and a time
	}
	return encoded
}

// logMessages converts lines to messages of a stream.
func logMessages(lines iter.Seq2[joblog.Line, error]) iter.Seq2[stream.Message, error] {
	return func(yield func(stream.Message, error) bool) {
		for line, err := range lines {
			if err != nil {
				yield(stream.Message{}, err)
				return
			}
			message := fmt.Appendf(nil, `{"type":"LOG","log":%s}`, encodeLine(line))
			if !yield(stream.Message{JSON: message}, nil) {
				return
			}
		}
	}
}

// writeLines sends lines as they arrive. An error before the first line is an error
// response; after it, the connection is aborted.
func (a *API) writeLines(writer http.ResponseWriter, in *input, contentType string, lines iter.Seq2[joblog.Line, error], encode func(joblog.Line) []byte) {
	started, waiting := false, in.query.flag("follow")
	control := http.NewResponseController(writer)
	start := func() {
		if !started {
			writer.Header().Set("Content-Type", contentType)
			writer.WriteHeader(http.StatusOK)
			started = true
		}
	}
	for line, err := range lines {
		if err != nil && !started {
			a.fail(writer, in.Request, err)
			return
		}
		if err != nil {
			// The client must be able to distinguish an incomplete log from a complete
			// one.
			panic(http.ErrAbortHandler)
		}
		start()
		if _, err := writer.Write(encode(line)); err != nil {
			return
		}
		if !waiting {
			continue
		}
		if err := control.Flush(); err != nil {
			return
		}
	}
	start()
}

const (
	// maxLogBytes limits a document of lines; for more, clients use follow or plain text.
	// It fits into the response budget of one user.
	maxLogBytes = 6 << 20
	// freeLogBytes are not counted in the budget: most logs are smaller. Larger logs take
	// from the budget in steps.
	freeLogBytes = 128 << 10
	logStep      = 1 << 20
)

// lineOverhead is about the size of a line without its text.
const lineOverhead = 256

// collectLines sends all lines in one document.
func (a *API) collectLines(writer http.ResponseWriter, in *input, lines iter.Seq2[joblog.Line, error]) {
	list, size, taken := logList{Logs: []logLine{}}, 0, freeLogBytes
	for line, err := range lines {
		if err != nil {
			a.fail(writer, in.Request, err)
			return
		}
		if size += len(line.Text) + lineOverhead; size > maxLogBytes {
			a.fail(writer, in.Request, apierror.Invalid("tailLines", "the log lines exceed %d MB; request fewer lines, or use follow=true to stream them", maxLogBytes>>20))
			return
		}
		for ; size > taken; taken += logStep {
			if err := budget.Take(in.context(), logStep); err != nil {
				a.fail(writer, in.Request, err)
				return
			}
		}
		list.Logs = append(list.Logs, asLogLine(line))
	}
	a.reply(writer, in.Request, http.StatusOK, list)
}
