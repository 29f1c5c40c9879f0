// SPDX-License-Identifier: Apache-2.0

package activity

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

const (
	// maxSamples limits the history that ranks are compared by.
	maxSamples = 16
	// movedBytes is how much a rank must read or write between two reports to make
	// progress. Programs that only wait also read a few bytes, for example from timers.
	movedBytes = 1 << 20
	// activeShare is the share of a CPU that a rank uses at least if it does something
	// between its sleeps. Threads that only poll use less.
	activeShare = 0.05
)

// History is what must be remembered of a job's reports to judge the next one. Its size
// does not grow with the number of reports. It is not safe for concurrent use.
type History struct {
	// progressAt is when the job last made progress; examinations counts those since then.
	progressAt   time.Time
	examinations int
	// hasProgressed: a report showed progress since an earlier one.
	hasProgressed bool
	// examinedAt and examined are the last examination.
	examinedAt time.Time
	examined   []rankState
	// computing are the ranks that computed in the last examination.
	computing []int

	receivedAt time.Time
	ranks      []rankState
	unknown    []unknownHost
	output     time.Time
	progress   protocol.Progress
	final      bool

	samples []sample
}

// rankState is a rank in the last report.
type rankState struct {
	rank, pid      int
	host           string
	state          string
	doing          protocol.Doing
	waitsFor       string
	step           *int64
	lastOutput     time.Time
	cpu            float64
	read, written  int64
	isActiveAsleep bool
}

// unknownHost is a host whose ranks are not known, and why.
type unknownHost struct {
	name, why string
	// ranks are those that were last known there.
	ranks []int
}

// Add adds a report to the history.
func (h *History) Add(receivedAt time.Time, a *protocol.Activity) {
	ranks := rankStates(a)
	isFirst := h.progressAt.IsZero()
	moved := isFirst || h.hasMoved(a, ranks)
	h.markActive(receivedAt, ranks)
	if !moved && a.Examined {
		moved = h.examine(receivedAt, ranks)
	}
	h.hasProgressed = h.hasProgressed || moved && !isFirst
	if moved {
		h.progressAt, h.examinations, h.computing, h.examined, h.examinedAt = receivedAt, 0, nil, nil, time.Time{}
	}
	h.noteUnknown(a)
	h.receivedAt, h.ranks, h.final = receivedAt, ranks, a.Final
	if a.LastOutput != nil {
		h.output = *a.LastOutput
	}
	if a.Progress != nil {
		h.progress = *a.Progress
	}
	h.addSample(receivedAt, ranks)
}

func rankStates(a *protocol.Activity) []rankState {
	var ranks []rankState
	for _, host := range a.Hosts {
		for _, rank := range host.Ranks {
			one := rankState{
				rank: rank.Rank, pid: rank.PID, host: host.Name, state: rank.State, doing: rank.Doing, waitsFor: rank.WaitsFor, step: rank.Step,
				cpu: rank.CPUSeconds, read: rank.BytesRead, written: rank.BytesWritten,
			}
			if rank.LastOutput != nil {
				one.lastOutput = *rank.LastOutput
			}
			ranks = append(ranks, one)
		}
	}
	slices.SortFunc(ranks, func(a, b rankState) int { return cmp.Compare(a.rank, b.rank) })
	return slices.CompactFunc(ranks, func(a, b rankState) bool { return a.rank == b.rank })
}

func find(ranks []rankState, rank int) (rankState, bool) {
	at, found := slices.BinarySearchFunc(ranks, rank, func(one rankState, rank int) int { return cmp.Compare(one.rank, rank) })
	if !found {
		return rankState{}, false
	}
	return ranks[at], true
}

// hasMoved reports whether a report shows progress without an examination.
func (h *History) hasMoved(a *protocol.Activity, ranks []rankState) bool {
	if a.LastOutput != nil && !a.LastOutput.Equal(h.output) || a.Progress != nil && !equalProgress(*a.Progress, h.progress) {
		return true
	}
	return slices.ContainsFunc(ranks, func(now rankState) bool {
		before, known := find(h.ranks, now.rank)
		switch {
		case !known:
			// It has started, or its host was not known.
			return !h.wasUnknown(now.rank)
		case before.pid != now.pid || !equalStep(before.step, now.step) || !before.lastOutput.Equal(now.lastOutput):
			return true
		default:
			return now.read-before.read >= movedBytes || now.written-before.written >= movedBytes
		}
	})
}

func (h *History) wasUnknown(rank int) bool {
	return slices.ContainsFunc(h.unknown, func(host unknownHost) bool { return slices.Contains(host.ranks, rank) })
}

func equalStep(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// equalProgress ignores what is calculated from the clock.
func equalProgress(a, b protocol.Progress) bool {
	return equalStep(a.Step, b.Step) && a.Of == b.Of && slices.Equal(a.Metrics, b.Metrics) &&
		(a.Percentage == nil) == (b.Percentage == nil) && (a.Percentage == nil || *a.Percentage == *b.Percentage)
}

// markActive finds the ranks that have used the CPU since the last report, although they
// may sleep at the moment of an examination.
func (h *History) markActive(receivedAt time.Time, ranks []rankState) {
	passed := receivedAt.Sub(h.receivedAt).Seconds()
	for i := range ranks {
		before, known := find(h.ranks, ranks[i].rank)
		ranks[i].isActiveAsleep = known && passed > 0 && (ranks[i].cpu-before.cpu)/passed > activeShare
	}
}

// examine notes an examination, and reports whether it shows progress. One in which a rank
// could not be examined says nothing: on a busy machine, that is soon followed by another.
func (h *History) examine(receivedAt time.Time, ranks []rankState) bool {
	h.examinedAt = receivedAt
	// A job with a stopped rank makes no progress, whatever the others do meanwhile.
	isStuck := slices.ContainsFunc(ranks, func(one rankState) bool { return isStopped(one.state) })
	if !isStuck && slices.ContainsFunc(ranks, isUnexamined) {
		return false
	}
	var computing []int
	for _, one := range ranks {
		if !isStuck && (one.doing == protocol.Computing || one.doing == protocol.Sleeping && one.isActiveAsleep) {
			computing = append(computing, one.rank)
		}
	}
	hasChanged := h.examinations > 0 && !slices.Equal(computing, h.computing)
	h.examinations++
	h.examined, h.computing = ranks, computing
	return hasChanged || len(computing) > 0 && !h.maySerialize(computing, ranks)
}

func isUnexamined(one rankState) bool {
	return one.doing == "" && !isStopped(one.state) && !isExited(one.state)
}

// maySerialize reports whether all other ranks may wait for those that compute: one rank,
// or the ranks of one host of several, which may be slow.
func (h *History) maySerialize(computing []int, ranks []rankState) bool {
	if len(ranks) < 2 || 2*len(computing) > len(ranks) {
		return false
	}
	if len(computing) == 1 {
		return true
	}
	hosts := map[string]bool{}
	for _, rank := range computing {
		one, _ := find(ranks, rank)
		hosts[one.host] = true
	}
	return len(hosts) == 1
}

// noteUnknown remembers the ranks of hosts that do not answer: those of the last report
// that had some.
func (h *History) noteUnknown(a *protocol.Activity) {
	ranks := map[string][]int{}
	for _, host := range h.unknown {
		ranks[host.name] = host.ranks
	}
	last := map[string][]int{}
	for _, rank := range h.ranks {
		last[rank.host] = append(last[rank.host], rank.rank)
	}
	maps.Copy(ranks, last)
	h.unknown = nil
	isNoted := map[string]bool{}
	for _, host := range a.Hosts {
		if host.Unknown != "" && !isNoted[host.Name] {
			isNoted[host.Name] = true
			h.unknown = append(h.unknown, unknownHost{name: host.Name, why: host.Unknown, ranks: ranks[host.Name]})
		}
	}
}
