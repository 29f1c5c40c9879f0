// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// randomLog is lines whose times go on in small and large steps, and sometimes
// back a little, as those of stdout and stderr do.
func randomLog(dice *rand.Rand, count int) []stamped {
	lines := make([]stamped, count)
	at := time.Unix(1700000000, int64(dice.IntN(1e9)))
	for i := range lines {
		switch dice.IntN(8) {
		case 0: // The same moment.
		case 1:
			at = at.Add(time.Duration(dice.IntN(3_000_000_000)))
		default:
			at = at.Add(time.Duration(dice.IntN(300_000_000)))
		}
		lines[i] = stamped{at: at, text: fmt.Sprintf("line %d %s", i, strings.Repeat("x", dice.IntN(1+dice.IntN(200))))}
		if i > 0 && dice.IntN(5) == 0 {
			// Not before the first line: that may be where reading began.
			lines[i].at = lines[i].at.Add(-time.Duration(dice.IntN(20_000)))
			if lines[i].at.Before(lines[0].at) {
				lines[i].at = lines[0].at
			}
		}
	}
	return lines
}

func texts(lines []stamped) []string {
	texts := make([]string, len(lines))
	for i := range lines {
		texts[i] = lines[i].text
	}
	return texts
}

// Whatever breaks, wherever: each line is read once, and in its order.
func TestBrokenStreamContinues(t *testing.T) {
	for seed := range uint64(300) {
		dice := rand.New(rand.NewPCG(seed, 0))
		cluster := newBreaking(seed, 1+dice.IntN(2000))
		lines := randomLog(dice, 1+dice.IntN(120))
		cluster.begin("train-launcher", "launcher")
		cluster.run("train-launcher")
		// Some of it is written while it is read.
		first := dice.IntN(len(lines) + 1)
		cluster.write("train-launcher", lines[:first]...)
		feed := &feed{source: cluster, origin: origin{pod: "train-launcher", container: "main"}, longest: 64}
		var got []string
		part := ""
		pass := func(line Line) bool {
			if part += line.Text; !line.Continues {
				got = append(got, part)
				part = ""
			}
			return true
		}
		for tries := 0; ; tries++ {
			if tries == 20000 {
				t.Fatalf("seed %d: it does not get on", seed)
			}
			// A place that a short stream does not get beyond would never be passed.
			cluster.longestStream++
			err := feed.read(t.Context(), reading{last: first == len(lines)}, pass)
			if err == nil && first == len(lines) {
				break
			}
			next := min(len(lines), first+dice.IntN(10))
			cluster.write("train-launcher", lines[first:next]...)
			first = next
		}
		if diff := cmp.Diff(texts(lines), got); diff != "" {
			t.Fatalf("seed %d (-written +read):\n%s", seed, diff)
		}
	}
}

// With the end of a log only, nothing from before it comes when a stream breaks.
func TestTheEndOfALogStaysTheEnd(t *testing.T) {
	for seed := range uint64(200) {
		dice := rand.New(rand.NewPCG(seed, 0))
		lines := randomLog(dice, 60)
		for i := range lines {
			// Two lines of the same moment cannot be told apart by it.
			lines[i].at = lines[0].at.Add(time.Duration(i) * 30 * time.Millisecond)
		}
		cluster := newBreaking(seed, 900)
		cluster.begin("train-launcher", "launcher")
		cluster.run("train-launcher")
		cluster.write("train-launcher", lines[:40]...)
		tail := int64(1 + dice.IntN(39))
		feed := &feed{source: cluster, origin: origin{pod: "train-launcher", container: "main"}, options: Options{Tail: &tail}}
		var got []string
		pass := func(line Line) bool { got = append(got, line.Text); return true }
		readOn := func(how reading) {
			for tries := 0; feed.read(t.Context(), how, pass) != nil; tries++ {
				if cluster.longestStream += 10; tries == 5000 {
					t.Fatalf("seed %d: it does not get on", seed)
				}
			}
		}
		readOn(reading{})
		cluster.write("train-launcher", lines[40:]...)
		readOn(reading{last: true})
		if diff := cmp.Diff(texts(lines[40-int(tail):]), got); diff != "" {
			t.Fatalf("seed %d, tail %d (-want +read):\n%s", seed, tail, diff)
		}
	}
}

// A log that was rotated between two streams has lost its beginning, and that is
// all that is lost.
func TestARotatedLog(t *testing.T) {
	begin := time.Unix(1700000000, 0)
	at := func(milliseconds int) time.Time { return begin.Add(time.Duration(milliseconds) * time.Millisecond) }
	var position position
	for _, read := range []int{0, 10, 20, 30} {
		position.advance(at(read))
	}
	replay := position.replay()
	var taken []int
	for _, there := range []int{30, 40, 50} {
		if !replay.known(at(there)) {
			taken = append(taken, there)
		}
	}
	if diff := cmp.Diff([]int{40, 50}, taken); diff != "" {
		t.Error(diff)
	}
}
