// SPDX-License-Identifier: Apache-2.0

// Package joblog merges the logs of a job's pods into one stream: lines of several pods
// in the order of their time, across new and deleted pods, restarted containers and
// broken connections.
//
// It is independent of its consumer, a terminal or a client of the server. A slow
// consumer slows the streams of the pods down; lines are not buffered without limit.
package joblog

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// Line is one line of a container's log.
type Line struct {
	Pod  string
	Role string
	// Worker is the number of the worker; -1 for pods of other roles.
	Worker    int32
	Container string
	// Rank that wrote the line, if mpirun tags it; else NoRank.
	Rank int
	// Time at which the container runtime read the line.
	Time time.Time
	Text string
	// Continues: the line was too long, and continues in the next Line of its pod.
	Continues bool
}

// NoRank is the rank of a line without a tag.
const NoRank = -1

// Selection chooses the pods and lines of a job.
type Selection struct {
	// Roles to read; empty means launcher and workers.
	Roles []string
	// Worker, if set, is the only worker.
	Worker *int32
	// Container to read; empty means the first, or all of an initializer.
	Container string
	// Rank, if set, selects the lines of one rank.
	Rank *int
	// Tags is the MPI implementation whose tags the lines have; empty if they have none.
	Tags mpi.Implementation
}

// Options control how to read.
type Options struct {
	// Follow keeps reading until the job has finished.
	Follow bool
	// Ended is closed by the caller when the job has finished or was deleted. It is only
	// needed with Follow.
	Ended <-chan struct{}
	// Previous reads the container's previous run, or else the pod before the newest.
	Previous bool
	// Tail is how many existing lines of each container to read; nil means all.
	Tail *int64
	// Since skips older lines.
	Since time.Time
	// Notify receives messages for the reader besides the lines. It is called from other
	// goroutines, one call at a time.
	Notify func(string)
	// Patience is how long to wait for late lines while following; 0 means 250 ms.
	Patience time.Duration
}

// UntaggedError: the lines of one rank were requested, and no line has a tag.
type UntaggedError struct{ Rank int }

func (e *UntaggedError) Error() string {
	return fmt.Sprintf("no line has a rank tag, so the lines of rank %d cannot be selected", e.Rank)
}

// NoPodsError: no pod matches the selection.
type NoPodsError struct {
	// Others is how many other pods the job has.
	Others int
}

func (e *NoPodsError) Error() string {
	if e.Others > 0 {
		return fmt.Sprintf("none of the %d pods of the job matches the selection", e.Others)
	}
	return "the job has no pods"
}

// NotStartedError: no container of the pods has started.
type NotStartedError struct {
	// Reasons say what each pod is waiting for.
	Reasons []string
}

func (e *NotStartedError) Error() string {
	return "no container has started yet: " + strings.Join(e.Reasons, "; ")
}

// UnknownContainerError: no pod has a container of that name.
type UnknownContainerError struct {
	Name string
	// Known are the names of the containers.
	Known []string
}

func (e *UnknownContainerError) Error() string {
	return fmt.Sprintf("no pod has a container %q", e.Name)
}

// NoPreviousError: there was no previous run.
type NoPreviousError struct{ Pods []string }

func (e *NoPreviousError) Error() string { return "there was no previous run" }

// Stream returns the lines of a job's pods. An error is the last element.
func Stream(ctx context.Context, source Source, selection Selection, options Options) iter.Seq2[Line, error] {
	options.Notify = serialized(options.Notify)
	if options.Patience == 0 {
		options.Patience = 250 * time.Millisecond
	}
	return func(yield func(Line, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		filter := &filter{selection: selection, yield: yield}
		var err error
		if options.Follow {
			err = follow(ctx, source, selection, options, filter.pass)
		} else {
			err = once(ctx, source, selection, options, filter.pass)
		}
		if err == nil {
			err = filter.result()
		}
		if err != nil && !filter.stopped {
			yield(Line{}, err)
		}
	}
}

// serialized makes a function that may be nil safe for concurrent calls.
func serialized(notify func(string)) func(string) {
	var lock sync.Mutex
	return func(text string) {
		lock.Lock()
		defer lock.Unlock()
		if notify != nil {
			notify(text)
		}
	}
}

// filter passes the selected lines on.
type filter struct {
	selection Selection
	yield     func(Line, error) bool
	stopped   bool
	// lines and tagged are how many lines were read, and how many have a rank tag.
	lines, tagged int
	// continues is the rank of a line that is not complete, for each container.
	continues map[string]int
}

// pass returns false when the consumer has stopped.
func (f *filter) pass(line Line) bool {
	f.setRank(&line)
	f.lines++
	if line.Rank != NoRank {
		f.tagged++
	}
	if rank := f.selection.Rank; rank != nil && line.Rank != *rank {
		return true
	}
	if !f.yield(line, nil) {
		f.stopped = true
	}
	return !f.stopped
}

// setRank sets the rank of a line. Only the first piece of a long line has a tag.
func (f *filter) setRank(line *Line) {
	origin := line.Pod + "/" + line.Container
	if rank, continues := f.continues[origin]; continues {
		line.Rank = rank
	} else {
		line.Rank = Rank(f.selection.Tags, line.Text)
	}
	switch {
	case !line.Continues:
		delete(f.continues, origin)
	case f.continues == nil:
		f.continues = map[string]int{origin: line.Rank}
	default:
		f.continues[origin] = line.Rank
	}
}

func (f *filter) result() error {
	if rank := f.selection.Rank; rank != nil && f.lines > 0 && f.tagged == 0 {
		return &UntaggedError{Rank: *rank}
	}
	return nil
}
