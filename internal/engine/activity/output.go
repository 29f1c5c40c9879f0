// SPDX-License-Identifier: Apache-2.0

package activity

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

const (
	// maxPatternLine is the length up to which lines are matched with a pattern.
	maxPatternLine = 1024
	// maxOutputRanks limits the ranks that are remembered.
	maxOutputRanks = 1 << 16
)

// Output reads the progress that a program writes to its output. It is not safe for
// concurrent use.
type Output struct {
	isTagged bool
	pattern  *regexp.Regexp

	lastLine time.Time
	ranks    map[int]RankOutput
	// source is the rank whose lines are the progress of the job: the lowest that reports.
	source   int
	step     *int64
	of       int64
	metrics  map[string]string
	said     saidProgress
	baseline *baseline
	// shown is the last progress that was returned, and saidRemaining the remaining time that
	// the program had said by then.
	shown         *protocol.Progress
	saidRemaining *int64
}

// RankOutput is what one rank wrote.
type RankOutput struct {
	LastLine time.Time
	Step     *int64
}

// saidProgress is what the program says itself, instead of steps.
type saidProgress struct {
	percentage *int32
	remaining  *int64
	at         time.Time
}

// baseline is the first step, from which the speed is calculated.
type baseline struct {
	at   time.Time
	step int64
}

// NewOutput reads lines of the form `trireme: {"step": 10, "of": 100, "loss": 0.3}`, and
// lines that match a pattern. isTagged means that Hydra prints ranks in front of lines.
func NewOutput(pattern string, isTagged bool) (*Output, error) {
	o := &Output{isTagged: isTagged, ranks: map[int]RankOutput{}, metrics: map[string]string{}, source: -1}
	if pattern == "" {
		return o, nil
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return o, fmt.Errorf("%s is not a regular expression: %w", protocol.ProgressPatternVariable, err)
	}
	o.pattern = compiled
	return o, nil
}

var linePrefix = []byte("trireme:")

// Line reads a line without its line break. A progress bar that rewrites its line writes
// many lines.
func (o *Output) Line(line []byte, at time.Time) {
	o.lastLine = at
	rank, text := mpi.CutTag(line, o.isTagged)
	if rank >= 0 {
		one, known := o.ranks[rank]
		if known || len(o.ranks) < maxOutputRanks {
			one.LastLine = at
			o.ranks[rank] = one
		}
	}
	found, ok := o.read(text)
	if !ok {
		return
	}
	if one, known := o.ranks[rank]; known && found.step != nil {
		one.Step = found.step
		o.ranks[rank] = one
	}
	o.note(rank, found, at)
}

// read finds the progress in the text of a line.
func (o *Output) read(text []byte) (found reported, ok bool) {
	if bytes.HasPrefix(text, linePrefix) {
		return parseReport(bytes.TrimLeft(text[len(linePrefix):], " \t"))
	}
	if o.pattern == nil {
		return reported{}, false
	}
	if len(text) > maxPatternLine {
		return reported{}, false
	}
	return o.match(text)
}

// match reads the groups of the pattern. The first group without a name is the step, the
// second one the number of steps; a group with a name is read as the member of that name
// in a report.
func (o *Output) match(text []byte) (found reported, ok bool) {
	groups := o.pattern.FindSubmatch(text)
	if groups == nil {
		return reported{}, false
	}
	unnamed := []string{memberStep, memberOf}
	for i, name := range o.pattern.SubexpNames()[1:] {
		if name == "" && len(unnamed) > 0 {
			name, unnamed = unnamed[0], unnamed[1:]
		}
		if value := groups[i+1]; name != "" && value != nil {
			found.set(name, string(value), isNumber(string(value)))
		}
	}
	return found, true
}

// note adds a report to the progress of the job.
func (o *Output) note(rank int, found reported, at time.Time) {
	if o.source >= 0 && rank > o.source {
		// All ranks may print the same.
		return
	}
	o.source = rank
	if found.step != nil {
		if o.baseline == nil || *found.step < o.baseline.step {
			o.baseline = &baseline{at: at, step: *found.step}
		}
		o.step = found.step
	}
	if found.of > 0 {
		o.of = found.of
	}
	if found.percentage != nil || found.remaining != nil {
		o.said = saidProgress{percentage: found.percentage, remaining: found.remaining, at: at}
	}
	for _, metric := range found.metrics {
		if _, known := o.metrics[metric.Name]; known || len(o.metrics) < protocol.MaxMetrics {
			o.metrics[metric.Name] = metric.Value
		}
	}
}

// LastLine is when the last line was written. It is zero if there was none.
func (o *Output) LastLine() time.Time { return o.lastLine }

// Rank returns what a rank wrote, if lines are tagged with ranks.
func (o *Output) Rank(rank int) (RankOutput, bool) {
	one, known := o.ranks[rank]
	return one, known
}

// Progress is the progress of the job, or nil if the program has reported none. What the
// program does not say itself is calculated from the steps. The remaining time is that of
// the first call after something new was reported: progress that changes with the clock
// would look like progress of the job.
func (o *Output) Progress(now time.Time) *protocol.Progress {
	if o.step == nil && o.said == (saidProgress{}) && len(o.metrics) == 0 {
		return nil
	}
	progress := &protocol.Progress{Step: o.step, Of: o.of, Percentage: o.said.percentage}
	for _, name := range slices.Sorted(maps.Keys(o.metrics)) {
		progress.Metrics = append(progress.Metrics, protocol.Metric{Name: name, Value: o.metrics[name]})
	}
	if progress.Percentage == nil && o.step != nil && o.of > 0 {
		progress.Percentage = new(int32(min(100*float64(*o.step)/float64(o.of), 100)))
	}
	if o.shown != nil && equalProgress(*progress, *o.shown) && equalStep(o.said.remaining, o.saidRemaining) {
		return o.shown
	}
	if o.said.remaining != nil {
		progress.RemainingSeconds = new(max(*o.said.remaining-int64(now.Sub(o.said.at).Seconds()), 0))
	} else {
		progress.RemainingSeconds = o.remaining(now)
	}
	o.shown, o.saidRemaining = progress, o.said.remaining
	return progress
}

// remaining is calculated from the steps since the first one.
func (o *Output) remaining(now time.Time) *int64 {
	if o.step == nil || o.baseline == nil || o.of < *o.step || *o.step <= o.baseline.step {
		return nil
	}
	perStep := now.Sub(o.baseline.at).Seconds() / float64(*o.step-o.baseline.step)
	return new(int64(perStep * float64(o.of-*o.step)))
}

func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}
