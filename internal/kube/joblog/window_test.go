// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Lines that arrive within the window come in the order of their time.
func TestWindowOrders(t *testing.T) {
	for seed := range uint64(100) {
		dice := rand.New(rand.NewPCG(seed, 0))
		type late struct {
			line    Line
			arrives time.Time
		}
		var all []late
		for i := range 200 {
			written := begin.Add(time.Duration(i) * 10 * time.Millisecond)
			all = append(all, late{Line{Time: written, Text: fmt.Sprint(i)}, written.Add(time.Duration(dice.IntN(250)) * time.Millisecond)})
		}
		slices.SortFunc(all, func(a, b late) int { return a.arrives.Compare(b.arrives) })
		window := newWindow(250 * time.Millisecond)
		var got []string
		take := func(now time.Time) {
			for line, due := window.take(now); due; line, due = window.take(now) {
				if late := now.Sub(line.Time); late > 510*time.Millisecond {
					t.Fatalf("seed %d: line %s was held for %s", seed, line.Text, late)
				}
				got = append(got, line.Text)
			}
		}
		for _, one := range all {
			if due, waits := window.due(); waits && due.Before(one.arrives) {
				take(due)
			}
			take(one.arrives)
			window.add(one.line, one.arrives)
		}
		for line, more := window.flush(); more; line, more = window.flush() {
			got = append(got, line.Text)
		}
		var want []string
		for i := range 200 {
			want = append(want, fmt.Sprint(i))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// What is held back is bounded, in lines and in bytes.
func TestWindowIsBounded(t *testing.T) {
	for name, size := range map[string]int{"lines": 1, "bytes": 1 << 20} {
		window := newWindow(time.Hour)
		held, most := 0, 0
		for i := range 3 * maxLines {
			window.add(Line{Time: begin.Add(time.Duration(i)), Text: strings.Repeat("x", size)}, begin)
			held++
			for _, due := window.take(begin); due; _, due = window.take(begin) {
				held--
			}
			most = max(most, held)
			if size > 1 && i > 100 {
				break
			}
		}
		if most > maxLines || most*size > maxBytes {
			t.Errorf("%s: %d lines of %d bytes were held", name, most, size)
		}
	}
}
