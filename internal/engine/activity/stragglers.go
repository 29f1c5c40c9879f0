// SPDX-License-Identifier: Apache-2.0

package activity

import (
	"slices"
	"time"
)

const (
	// minWindowSamples is how many samples a comparison needs.
	minWindowSamples = 3
	// minRanks is how many ranks a median needs.
	minRanks = 3
	// minMedianShare is the share of a CPU that the median rank uses at least. Below it,
	// CPU time says nothing about the speed.
	minMedianShare = 0.2
)

// sample is a rank's work at a time.
type sample struct {
	at    time.Time
	ranks []rankSample
}

type rankSample struct {
	rank   int
	isBusy bool
	step   int64 // -1 if it is unknown
	cpu    float64
}

// addSample adds a sample. Samples are the rarer the older they are, so that a few of them
// cover any window.
func (h *History) addSample(at time.Time, ranks []rankState) {
	one := sample{at: at}
	for _, rank := range ranks {
		step := int64(-1)
		if rank.step != nil {
			step = *rank.step
		}
		one.ranks = append(one.ranks, rankSample{rank: rank.rank, isBusy: isBusy(rank.state), step: step, cpu: rank.cpu})
	}
	h.samples = append(h.samples, one)
	for i := len(h.samples) - 2; i > 0; i-- {
		before, after := h.samples[i-1].at, h.samples[i+1].at
		if 2*after.Sub(before) <= at.Sub(before) {
			h.samples = slices.Delete(h.samples, i, i+1)
		}
	}
	if len(h.samples) > maxSamples {
		h.samples = slices.Delete(h.samples, 0, 1)
	}
}

// window returns the samples of the last window, if they cover it.
func (h *History) window(length time.Duration) []sample {
	for i := len(h.samples) - minWindowSamples; i >= 0; i-- {
		if h.receivedAt.Sub(h.samples[i].at) >= length {
			return h.samples[i:]
		}
	}
	return nil
}

// stragglers compares the ranks by their steps if all report them, and otherwise by their
// CPU time. CPU time only counts for ranks that were always running or waited for a disk:
// those get less CPU than others, while a rank that sleeps may just have less to do.
func (h *History) stragglers(s Settings) []Straggler {
	if s.StragglerFactor <= 1 || s.StragglerWindow <= 0 || h.final {
		return nil
	}
	window := h.window(s.StragglerWindow)
	if window == nil {
		return nil
	}
	seconds := window[len(window)-1].at.Sub(window[0].at).Seconds()
	if rates, ok := stepRates(window, seconds); ok {
		return h.slower(rates, 0, s.StragglerFactor)
	}
	return h.slower(cpuRates(window, seconds), minMedianShare, s.StragglerFactor)
}

// rate is how fast a rank works. mayAccuse is false for ranks that only count for the
// median.
type rate struct {
	rank      int
	value     float64
	mayAccuse bool
}

func stepRates(window []sample, seconds float64) ([]rate, bool) {
	first, last := window[0], window[len(window)-1]
	var rates []rate
	for _, now := range last.ranks {
		before, known := findSample(first.ranks, now.rank)
		if !known || before.step < 0 || now.step < before.step {
			return nil, false
		}
		rates = append(rates, rate{rank: now.rank, value: float64(now.step-before.step) / seconds, mayAccuse: true})
	}
	return rates, len(rates) > 0
}

func cpuRates(window []sample, seconds float64) []rate {
	first, last := window[0], window[len(window)-1]
	var rates []rate
	for _, now := range last.ranks {
		before, known := findSample(first.ranks, now.rank)
		if !known || now.cpu < before.cpu {
			continue
		}
		wasBusy := !slices.ContainsFunc(window, func(at sample) bool {
			one, known := findSample(at.ranks, now.rank)
			return known && !one.isBusy
		})
		rates = append(rates, rate{rank: now.rank, value: (now.cpu - before.cpu) / seconds, mayAccuse: wasBusy})
	}
	return rates
}

func findSample(ranks []rankSample, rank int) (rankSample, bool) {
	at, found := slices.BinarySearchFunc(ranks, rank, func(one rankSample, rank int) int { return one.rank - rank })
	if !found {
		return rankSample{}, false
	}
	return ranks[at], true
}

// maxFactor limits the factor of a rank that does nothing.
const maxFactor = 1000

func (h *History) slower(rates []rate, minMedian, factor float64) []Straggler {
	if len(rates) < minRanks {
		return nil
	}
	values := make([]float64, 0, len(rates))
	for _, one := range rates {
		values = append(values, one.value)
	}
	slices.Sort(values)
	median := values[len(values)/2]
	if median <= minMedian {
		return nil
	}
	var found []Straggler
	for _, one := range rates {
		if !one.mayAccuse || one.value*factor >= median || len(found) == maxOdd {
			continue
		}
		times := min(median/max(one.value, median/maxFactor), maxFactor)
		rank, _ := find(h.ranks, one.rank)
		found = append(found, Straggler{Rank: one.rank, Host: rank.host, Factor: times})
	}
	return found
}
