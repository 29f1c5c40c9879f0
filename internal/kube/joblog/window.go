// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"container/heap"
	"time"
)

// Limits of what is held back.
const (
	maxLines = 8192
	maxBytes = 16 << 20
)

// window holds the newest lines back for a moment, to sort lines of different pods by
// time although they arrive in another order. It has no clock: the caller passes the
// times of arrival.
type window struct {
	patience time.Duration
	waiting  lineHeap
	// arrivals of the lines, oldest first; may contain lines that were taken already.
	arrivals []arrival
	held     map[uint64]bool
	bytes    int
	next     uint64
}

type arrival struct {
	order uint64
	at    time.Time
}

func newWindow(patience time.Duration) *window {
	return &window{patience: patience, held: map[uint64]bool{}}
}

func (w *window) add(line Line, now time.Time) {
	heap.Push(&w.waiting, queued{line: line, order: w.next})
	w.arrivals = append(w.arrivals, arrival{order: w.next, at: now})
	w.held[w.next] = true
	w.bytes += len(line.Text)
	w.next++
}

// due returns when the next line has waited long enough; false if none is waiting.
func (w *window) due() (time.Time, bool) {
	for len(w.arrivals) > 0 && !w.held[w.arrivals[0].order] {
		w.arrivals = w.arrivals[1:]
	}
	if len(w.arrivals) == 0 {
		return time.Time{}, false
	}
	return w.arrivals[0].at.Add(w.patience), true
}

// take returns the next line if a line that is not older has waited long enough, or too
// much is held.
func (w *window) take(now time.Time) (Line, bool) {
	due, any := w.due()
	if !any || now.Before(due) && len(w.waiting) <= maxLines && w.bytes <= maxBytes {
		return Line{}, false
	}
	return w.pop(), true
}

// flush returns the next line, whether or not it has waited.
func (w *window) flush() (Line, bool) {
	if len(w.waiting) == 0 {
		return Line{}, false
	}
	return w.pop(), true
}

func (w *window) pop() Line {
	first := heap.Pop(&w.waiting).(queued)
	delete(w.held, first.order)
	w.bytes -= len(first.line.Text)
	return first.line
}
