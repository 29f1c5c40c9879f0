// Package joblog reads the logs of a job's pods as one: lines of several pods in
// the order of their time, over pods that come and go, containers that start
// anew, and connections that break.
//
// It knows nothing of who reads: a terminal, or a server's client. A reader that
// is slow holds the pods' streams up, and nothing is gathered meanwhile.
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

// Line is one line that a container has written.
type Line struct {
	Pod  string
	Role string
	// Worker is the number of the worker; -1 for pods of other roles.
	Worker    int32
	Container string
	// Rank that wrote the line, where mpirun says so; else NoRank.
	Rank int
	// Time at which the container runtime has read the line.
	Time time.Time
	Text string
	// Continues: the line was too long, and goes on in the next Line of its pod.
	Continues bool
}

// NoRank is the rank of a line that does not tell.
const NoRank = -1

// Selection is what to read of a job.
type Selection struct {
	// Roles whose pods are read; none means launcher and workers.
	Roles []string
	// Worker, if set, is the only worker.
	Worker *int32
	// Container of the pods; empty is the first, and every one of an initializer.
	Container string
	// Rank, if set, leaves only the lines of one rank.
	Rank *int
	// Tags is whose tags tell the ranks. Empty: the lines have none.
	Tags mpi.Implementation
}

// Options are how to read.
type Options struct {
	// Follow reads on until the job has ended.
	Follow bool
	// Ended is closed by the caller when the job has ended, or is gone. Without
	// Follow it is not needed.
	Ended <-chan struct{}
	// Previous reads what ran before: the container's last run, or else the pod
	// before the newest.
	Previous bool
	// Tail is how many lines at the end of each container's log to begin with; nil
	// is all.
	Tail *int64
	// Since leaves out what is older.
	Since time.Time
	// Notify is told what readers may want to know besides the lines. It is called
	// from other goroutines, one call at a time.
	Notify func(string)
	// Patience with lines that may come late, while following; 0 is 250 ms.
	Patience time.Duration
}

// UntaggedError: the lines of one rank were asked for, and no line tells its rank.
type UntaggedError struct{ Rank int }

func (err *UntaggedError) Error() string {
	return fmt.Sprintf("no line says which rank wrote it, so those of rank %d cannot be told from others", err.Rank)
}

// NoPodsError: there is no pod to read.
type NoPodsError struct {
	// Others is how many pods the job has that were not asked for.
	Others int
}

func (err *NoPodsError) Error() string {
	if err.Others > 0 {
		return fmt.Sprintf("none of the %d pods of the job is of the kind that was asked for", err.Others)
	}
	return "the job has no pods"
}

// NotStartedError: there are pods, and none of them has begun to write.
type NotStartedError struct {
	// Reasons say of each pod what it waits for.
	Reasons []string
}

func (err *NotStartedError) Error() string {
	return "no container has started yet: " + strings.Join(err.Reasons, "; ")
}

// UnknownContainerError: no pod has a container of that name.
type UnknownContainerError struct {
	Name string
	// Known are the names that there are.
	Known []string
}

func (err *UnknownContainerError) Error() string {
	return fmt.Sprintf("no pod has a container %q", err.Name)
}

// NoPreviousError: nothing ran before.
type NoPreviousError struct{ Pods []string }

func (err *NoPreviousError) Error() string { return "nothing ran before what runs now" }

// Stream is the lines of a job's pods. An error is the last that it yields.
func Stream(ctx context.Context, source Source, selection Selection, options Options) iter.Seq2[Line, error] {
	options.Notify = oneByOne(options.Notify)
	if options.Patience == 0 {
		options.Patience = 250 * time.Millisecond
	}
	return func(yield func(Line, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		sieve := &sieve{selection: selection, yield: yield}
		var err error
		if options.Follow {
			err = follow(ctx, source, selection, options, sieve.pass)
		} else {
			err = once(ctx, source, selection, options, sieve.pass)
		}
		if err == nil {
			err = sieve.verdict()
		}
		if err != nil && !sieve.stopped {
			yield(Line{}, err)
		}
	}
}

// oneByOne makes a function that may be nil safe to call from everywhere.
func oneByOne(notify func(string)) func(string) {
	var lock sync.Mutex
	return func(text string) {
		lock.Lock()
		defer lock.Unlock()
		if notify != nil {
			notify(text)
		}
	}
}

// sieve lets through what was asked for.
type sieve struct {
	selection Selection
	yield     func(Line, error) bool
	stopped   bool
	// seen and tagged are how many lines there were, and how many told their rank.
	seen, tagged int
	// continues: for each container, the rank of a line that is not over yet.
	continues map[string]int
}

// pass is false when the reader wants no more.
func (sieve *sieve) pass(line Line) bool {
	sieve.tell(&line)
	sieve.seen++
	if line.Rank != NoRank {
		sieve.tagged++
	}
	if rank := sieve.selection.Rank; rank != nil && line.Rank != *rank {
		return true
	}
	if !sieve.yield(line, nil) {
		sieve.stopped = true
	}
	return !sieve.stopped
}

// tell finds out the line's rank. Only the first piece of a long line has a tag.
func (sieve *sieve) tell(line *Line) {
	origin := line.Pod + "/" + line.Container
	if rank, goesOn := sieve.continues[origin]; goesOn {
		line.Rank = rank
	} else {
		line.Rank = Rank(sieve.selection.Tags, line.Text)
	}
	switch {
	case !line.Continues:
		delete(sieve.continues, origin)
	case sieve.continues == nil:
		sieve.continues = map[string]int{origin: line.Rank}
	default:
		sieve.continues[origin] = line.Rank
	}
}

func (sieve *sieve) verdict() error {
	if rank := sieve.selection.Rank; rank != nil && sieve.seen > 0 && sieve.tagged == 0 {
		return &UntaggedError{Rank: *rank}
	}
	return nil
}
