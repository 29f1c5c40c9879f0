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

func (window *window) add(line Line, now time.Time) {
	heap.Push(&window.waiting, queued{line: line, order: window.next})
	window.arrivals = append(window.arrivals, arrival{order: window.next, at: now})
	window.held[window.next] = true
	window.bytes += len(line.Text)
	window.next++
}

// due returns when the next line has waited long enough; false if none is waiting.
func (window *window) due() (time.Time, bool) {
	for len(window.arrivals) > 0 && !window.held[window.arrivals[0].order] {
		window.arrivals = window.arrivals[1:]
	}
	if len(window.arrivals) == 0 {
		return time.Time{}, false
	}
	return window.arrivals[0].at.Add(window.patience), true
}

// take returns the next line if a line that is not older has waited long enough, or too
// much is held.
func (window *window) take(now time.Time) (Line, bool) {
	due, any := window.due()
	if !any || now.Before(due) && len(window.waiting) <= maxLines && window.bytes <= maxBytes {
		return Line{}, false
	}
	return window.pop(), true
}

// flush returns the next line, whether or not it has waited.
func (window *window) flush() (Line, bool) {
	if len(window.waiting) == 0 {
		return Line{}, false
	}
	return window.pop(), true
}

func (window *window) pop() Line {
	first := heap.Pop(&window.waiting).(queued)
	delete(window.held, first.order)
	window.bytes -= len(first.line.Text)
	return first.line
}
