// SPDX-License-Identifier: Apache-2.0

// Package accounting says for how long a job waited for its nodes, left them idle, and
// ran on them. Metrics, odh top and odh report use the same periods.
//
// The package is pure: the time is an argument.
package accounting

import (
	"slices"
	"time"

	"github.com/trireme-mpi/trireme/api/training"
)

// State is what a job does with the resources that it requests.
type State string

const (
	// Waiting: not all pods have a node.
	Waiting State = "waiting"
	// Idle: all pods have a node, and the ranks have not started.
	Idle State = "idle"
	// Running: the ranks have started.
	Running State = "running"
)

// States are all states, in the order in which a job has them.
var States = []State{Waiting, Idle, Running}

// Period is a time between two instants. It is empty if To is not after From.
type Period struct{ From, To time.Time }

// Length is how long a period lasts.
func (p Period) Length() time.Duration { return max(p.To.Sub(p.From), 0) }

// Within is the part of a period that lies in a range.
func (p Period) Within(from, to time.Time) Period {
	if p.From.Before(from) {
		p.From = from
	}
	if p.To.After(to) {
		p.To = to
	}
	return p
}

// Periods are the periods of a job by state.
type Periods map[State]Period

// Of returns the periods of a job until now. finished is when the job finished; it is
// zero for a job that has not. A job that was suspended counts as waiting since it was
// submitted, because its timeline starts again; one that was restarted keeps its first
// times.
func Of(timeline []training.TimelineEntry, submitted, finished, now time.Time) Periods {
	if at := stepTime(timeline, training.StepSubmitted); !at.IsZero() {
		submitted = at
	}
	end := now
	if at := stepTime(timeline, training.StepFinished); !at.IsZero() {
		end = at
	} else if !finished.IsZero() {
		end = finished
	}
	scheduled := stepTime(timeline, training.StepScheduled)
	if scheduled.IsZero() {
		return Periods{Waiting: {submitted, end}, Idle: {end, end}, Running: {end, end}}
	}
	// The end of the idle time is known exactly when the first rank has started; until
	// then the start of mpirun is close to it.
	started := end
	for _, step := range []training.TimelineStep{training.StepFirstRankUp, training.StepWorkersReached} {
		if at := stepTime(timeline, step); !at.IsZero() {
			started = at
			break
		}
	}
	return Periods{Waiting: {submitted, scheduled}, Idle: {scheduled, started}, Running: {started, end}}
}

// Now is the state of a job that has not finished.
func Now(timeline []training.TimelineEntry) State {
	reached := func(step training.TimelineStep) bool { return !stepTime(timeline, step).IsZero() }
	switch {
	case reached(training.StepFirstRankUp), reached(training.StepWorkersReached):
		return Running
	case reached(training.StepScheduled):
		return Idle
	default:
		return Waiting
	}
}

func stepTime(timeline []training.TimelineEntry, step training.TimelineStep) time.Time {
	index := slices.IndexFunc(timeline, func(entry training.TimelineEntry) bool { return entry.Step == step })
	if index < 0 {
		return time.Time{}
	}
	return timeline[index].Time.Time
}
