// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

const (
	// usual is how many schedules are run where nobody asks for more.
	usual = 50
	// told is how many lines of a history are shown when a schedule fails.
	told = 80
	// together is how many schedules are one test.
	together = 25
)

// onceFailed are seeds that find what was wrong before, if it is wrong again. They are
// run first.
var onceFailed = []uint64{153, 203, 169, 144, 271, 286, 783, 886, 984, 1028}

// TestSchedules runs as many seeds as TRIREME_SEEDS says, or the one of
// TRIREME_SEED.
func TestSchedules(t *testing.T) {
	for some := range slices.Chunk(seeds(t), together) {
		t.Run(fmt.Sprintf("%d-%d", some[0], some[len(some)-1]), func(t *testing.T) {
			t.Parallel()
			for _, seed := range some {
				if played := play(t, seed); played.failure != "" {
					t.Error(played.report(seed))
				}
			}
		})
	}
}

// report is what whoever mends it must know.
func (simulation *simulation) report(seed uint64) string {
	history := simulation.trace
	if os.Getenv("TRIREME_SEED") == "" {
		history = history[max(0, len(history)-told):]
	}
	return fmt.Sprintf("seed %d: %s\n%s\nAgain: TRIREME_SEED=%d go test ./test/faults/schedules -run TestSchedules -v", seed, simulation.failure, strings.Join(history, "\n"), seed)
}

func seeds(t *testing.T) (seeds []uint64) {
	if one := os.Getenv("TRIREME_SEED"); one != "" {
		return []uint64{uint64(number(t, one))}
	}
	seeds = append(seeds, onceFailed...)
	count := usual
	if text := os.Getenv("TRIREME_SEEDS"); text != "" {
		count = number(t, text)
	}
	for seed := range count {
		seeds = append(seeds, uint64(seed+1))
	}
	return seeds
}

func number(t *testing.T, text string) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%q is no number", text)
	}
	return found
}

// play runs the schedule of a seed, in a time of its own.
func play(t *testing.T, seed uint64) (played *simulation) {
	synctest.Test(t, func(*testing.T) {
		played = newSimulation(seed)
		played.run()
	})
	return played
}

// TestSameSeedSameHistory: what a seed has found, it finds again.
func TestSameSeedSameHistory(t *testing.T) {
	for seed := range uint64(10) {
		if first, second := play(t, seed), play(t, seed); first.hash() != second.hash() {
			t.Errorf("seed %d: %s", seed, difference(first.trace, second.trace))
		}
	}
}

func difference(one, other []string) string {
	for i := range min(len(one), len(other)) {
		if one[i] != other[i] {
			return fmt.Sprintf("line %d is %q, and then %q", i, one[i], other[i])
		}
	}
	return fmt.Sprintf("%d lines, and then %d", len(one), len(other))
}
