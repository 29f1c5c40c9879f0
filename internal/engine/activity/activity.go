// SPDX-License-Identifier: Apache-2.0

// Package activity judges what the ranks of a job do. Its input are the reports of the
// launcher's agent; its output says whether a job makes progress, which rank holds it up,
// and which ranks are slower than the others. It also reads the progress that a program
// writes to its output.
//
// A job makes progress when it writes a line, reports a step, reads or writes files, or
// computes outside of MPI. Ranks that wait in MPI use as much CPU time as ranks that
// compute, so CPU time alone is no progress: the ranks are examined first. What cannot be
// known is never held against a job.
package activity

import (
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// Settings are the settings of a job.
type Settings struct {
	// After is how long a job may make no progress. 0 is off.
	After time.Duration
	// StragglerFactor is how much slower than the median a rank may be, such as 3. Up to 1
	// is off.
	StragglerFactor float64
	// StragglerWindow is the time over which ranks are compared.
	StragglerWindow time.Duration
}

// Verdict is what is known about the progress of a job.
type Verdict struct {
	// Stalled means that the job has made no progress for Settings.After.
	Stalled bool
	// Progressing means that the job has made progress since its first report, and is not
	// stalled. If it is neither, that is not known yet: the first report after a change of the
	// leader says nothing about the time before it.
	Progressing bool
	// Since is when the job last made progress, or started to report. It is also set if the
	// job is not stalled.
	Since time.Time
	// Odd are the ranks that differ from the others, if some do. It is empty if all ranks
	// wait for each other.
	Odd []OddRank
	// Serial means that one rank computes and all others wait for it. That may be correct,
	// so it must only ever cause a warning.
	Serial bool
	// Message is a sentence for users.
	Message string
	// NeedsExamination asks the agent to examine the ranks for its next report.
	NeedsExamination bool
	// Stragglers are slower than the others, whether or not the job makes progress.
	Stragglers []Straggler
}

// OddRank is a rank that differs from the others.
type OddRank struct {
	Rank int
	Host string
	// Doing and WaitsFor are those of the last examination. Doing is empty if it is unknown.
	Doing, WaitsFor string
}

// Straggler is a rank that is slower than the median of the ranks.
type Straggler struct {
	Rank int
	Host string
	// Factor is how many times slower it is.
	Factor float64
}

// Summary returns how many ranks of a job are running, and when the first one was
// started. The time is zero if no rank is known.
func Summary(a *protocol.Activity) (running int, first time.Time) {
	for _, host := range a.Hosts {
		for _, rank := range host.Ranks {
			if !isExited(rank.State) {
				running++
			}
			if first.IsZero() || rank.Started.Before(first) {
				first = rank.Started
			}
		}
	}
	return running, first
}

// isExited reports whether a process has exited and was not waited for yet.
func isExited(state string) bool { return state == "Z" || state == "X" }

// isStopped reports whether a process was stopped by a signal or a debugger.
func isStopped(state string) bool { return state == "T" || state == "t" }

// isBusy reports whether a process runs, or waits to run, or waits for a disk.
func isBusy(state string) bool { return state == "R" || state == "D" }
