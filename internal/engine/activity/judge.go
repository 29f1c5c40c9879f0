// SPDX-License-Identifier: Apache-2.0

package activity

import (
	"slices"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

const (
	// minExaminations is how many examinations without progress must agree.
	minExaminations = 2
	// examinationParts: the first examination is due after half of Settings.After, the next
	// ones after another part of it each.
	examinationParts = 8
	// maxOdd limits the ranks that are named in a verdict.
	maxOdd = 16
)

// Judge judges a job by its reports. It needs no report at the moment now: a job is
// judged by the time of its last report, so that a launcher that cannot report for a while
// does not look stalled.
func Judge(h *History, now time.Time, s Settings) Verdict {
	if h.progressAt.IsZero() {
		return Verdict{Since: now}
	}
	verdict := Verdict{Since: h.progressAt, Progressing: h.hasProgressed, Stragglers: h.stragglers(s)}
	silence := h.receivedAt.Sub(h.progressAt)
	if s.After <= 0 || h.final || len(h.ranks) == 0 {
		return verdict
	}
	verdict.NeedsExamination = h.needsExamination(silence, s.After)
	if silence < s.After || h.examinations < minExaminations {
		return verdict
	}
	verdict.Stalled, verdict.Progressing = true, false
	found := h.explain()
	verdict.Serial = found.serial
	verdict.Odd = oddRanks(found.odd)
	verdict.Message = found.message(s.After, len(h.examined))
	return verdict
}

func (h *History) needsExamination(silence, after time.Duration) bool {
	if silence < after/2 {
		return false
	}
	return h.examinedAt.IsZero() || h.receivedAt.Sub(h.examinedAt) >= after/examinationParts
}

func oddRanks(ranks []rankState) []OddRank {
	var odd []OddRank
	for _, one := range ranks[:min(len(ranks), maxOdd)] {
		odd = append(odd, OddRank{Rank: one.rank, Host: one.host, Doing: string(one.doing), WaitsFor: one.waitsFor})
	}
	return odd
}

// explanation is why a job makes no progress.
type explanation struct {
	cause  cause
	odd    []rankState
	serial bool
	// host and why are set for unreachableHost.
	host, why string
	// step and others are set for behind.
	step, others int64
}

// cause is a kind of explanation.
type cause int

const (
	// allWait: no rank differs from the others.
	allWait cause = iota
	allSleep
	stopped
	exited
	unreachableHost
	computesAlone
	behind
	sleeps
	waitsElsewhere
)

// explain finds the ranks that differ. The order is that of certainty.
func (h *History) explain() explanation {
	ranks := h.examined
	if odd := matching(ranks, func(one rankState) bool { return isStopped(one.state) }); len(odd) > 0 {
		return explanation{cause: stopped, odd: odd}
	}
	if odd := matching(ranks, func(one rankState) bool { return isExited(one.state) }); len(odd) > 0 {
		return explanation{cause: exited, odd: odd}
	}
	if len(h.unknown) > 0 {
		host := h.unknown[0]
		// It may compute, so others may wait for it as in a serial phase.
		found := explanation{cause: unreachableHost, serial: true, host: host.name, why: host.why}
		for _, rank := range host.ranks {
			found.odd = append(found.odd, rankState{rank: rank, host: host.name, waitsFor: host.why})
		}
		return found
	}
	if len(h.computing) > 0 {
		odd := matching(ranks, func(one rankState) bool { return slices.Contains(h.computing, one.rank) })
		return explanation{cause: computesAlone, odd: odd, serial: true}
	}
	if found, ok := behindOthers(ranks); ok {
		return found
	}
	return minority(ranks)
}

func matching(ranks []rankState, holds func(rankState) bool) []rankState {
	var found []rankState
	for _, one := range ranks {
		if holds(one) {
			found = append(found, one)
		}
	}
	return found
}

// behindOthers finds the ranks whose own step is lower than that of most ranks.
func behindOthers(ranks []rankState) (explanation, bool) {
	stepped := matching(ranks, func(one rankState) bool { return one.step != nil })
	if len(stepped) < 2 || len(stepped) < len(ranks) {
		return explanation{}, false
	}
	lowest, highest := *stepped[0].step, *stepped[0].step
	for _, one := range stepped {
		lowest, highest = min(lowest, *one.step), max(highest, *one.step)
	}
	odd := matching(stepped, func(one rankState) bool { return *one.step == lowest })
	if lowest == highest || !isMinority(odd, ranks) {
		return explanation{}, false
	}
	return explanation{cause: behind, odd: odd, step: lowest, others: highest}, true
}

// minority finds the ranks that sleep while most spin in MPI, or that wait for something
// else than most.
func minority(ranks []rankState) explanation {
	sleeping := matching(ranks, func(one rankState) bool { return one.doing == protocol.Sleeping })
	if len(sleeping) > 0 && isMinority(sleeping, ranks) {
		return explanation{cause: sleeps, odd: sleeping}
	}
	if len(sleeping) < len(ranks) {
		return explanation{cause: allWait}
	}
	counts := map[string]int{}
	for _, one := range ranks {
		counts[channel(one)]++
	}
	odd := matching(ranks, func(one rankState) bool { return 2*counts[channel(one)] < len(ranks) })
	if len(odd) > 0 && isMinority(odd, ranks) {
		return explanation{cause: waitsElsewhere, odd: odd}
	}
	return explanation{cause: allSleep}
}

func isMinority(odd, all []rankState) bool { return 2*len(odd) < len(all) }
