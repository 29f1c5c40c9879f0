// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/activity"
)

// maxWatchedLine limits what is kept of a line. The rest of a longer line is ignored.
const maxWatchedLine = 64 << 10

// outputWatch reads the progress in the command's output. It never changes or delays the
// output.
type outputWatch struct {
	mutex  sync.Mutex
	output *activity.Output
	// last is when something was written, also if it is not a whole line.
	last time.Time
}

// newOutputWatch reads its settings from the environment. An error is a setting that is
// ignored.
func newOutputWatch() (*outputWatch, error) {
	output, err := activity.NewOutput(os.Getenv(protocol.ProgressPatternVariable), os.Getenv(protocol.TagOutputVariable) != "")
	return &outputWatch{output: output}, err
}

// writer is for one stream of the command.
func (ow *outputWatch) writer() io.Writer { return &lineWriter{watch: ow} }

// lineWriter splits a stream into lines. A progress bar ends its lines with a carriage
// return.
type lineWriter struct {
	watch *outputWatch
	rest  []byte
	// isCut: the line is too long, and ignored up to its end.
	isCut bool
}

func (lw *lineWriter) Write(text []byte) (int, error) {
	lw.watch.mutex.Lock()
	defer lw.watch.mutex.Unlock()
	now := time.Now()
	lw.watch.last = now
	written := len(text)
	for {
		end := bytes.IndexAny(text, "\n\r")
		if end < 0 {
			break
		}
		line := text[:end]
		if len(lw.rest) > 0 {
			line = append(lw.rest, line...)
		}
		if !lw.isCut && len(line) > 0 && len(line) <= maxWatchedLine {
			lw.watch.output.Line(line, now)
		}
		text, lw.rest, lw.isCut = text[end+1:], lw.rest[:0], false
	}
	if len(lw.rest)+len(text) > maxWatchedLine {
		lw.rest, lw.isCut = lw.rest[:0], true
	}
	if !lw.isCut {
		lw.rest = append(lw.rest, text...)
	}
	return written, nil
}

// addTo adds what is known from the output to a report.
func (ow *outputWatch) addTo(a *protocol.Activity) {
	ow.mutex.Lock()
	defer ow.mutex.Unlock()
	a.Progress = ow.output.Progress(a.Time)
	if !ow.last.IsZero() {
		last := ow.last
		a.LastOutput = &last
	}
	for i := range a.Hosts {
		for j := range a.Hosts[i].Ranks {
			rank := &a.Hosts[i].Ranks[j]
			if written, known := ow.output.Rank(rank.Rank); known {
				rank.LastOutput, rank.Step = &written.LastLine, written.Step
			}
		}
	}
}
