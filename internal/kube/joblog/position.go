package joblog

import "time"

// position is how far the log of one run of a container has been read: enough to
// find the place again in another stream of it, and no more.
//
// An API server takes the time to begin at in whole seconds only, and the times in
// a log are not strictly in order: its two streams are stamped separately. So
// reading goes on from the second before the last line's, and as many lines are
// passed over as were read with a time from there on.
type position struct {
	// first is the time of the first line, last the latest of all.
	first, last time.Time
	// second of the latest line, and how many lines were read in the one before it
	// and in itself.
	second int64
	counts [2]int
	// pieces of a line that were read before it was complete.
	pieces int
}

// took notes a complete line.
func (position *position) took(at time.Time) {
	position.pieces = 0
	if at.IsZero() {
		return
	}
	if position.first.IsZero() {
		position.first, position.second = at, at.Unix()
	}
	if at.After(position.last) {
		position.last = at
	}
	switch second := at.Unix(); {
	case second > position.second+1:
		position.counts = [2]int{0, 1}
		position.second = second
	case second == position.second+1:
		position.counts = [2]int{position.counts[1], 1}
		position.second = second
	case second == position.second:
		position.counts[1]++
	case second == position.second-1:
		position.counts[0]++
	}
}

// begun tells whether anything was read.
func (position *position) begun() bool { return !position.first.IsZero() }

// since is the second to read on from.
func (position *position) since() time.Time { return time.Unix(position.second-1, 0).UTC() }

// replay is what to pass over in a stream that begins at since.
func (position *position) replay() replay {
	if !position.begun() {
		return replay{pieces: position.pieces}
	}
	return replay{first: position.first, last: position.last, lines: position.counts[0] + position.counts[1], pieces: position.pieces}
}

// replay passes over what was read before.
type replay struct {
	first, last   time.Time
	lines, pieces int
}

// known tells whether a line was read before. What is newer than all that was read
// is new, even if fewer lines came before it than expected: they went with a log
// that was rotated.
func (replay *replay) known(at time.Time) bool {
	switch {
	case at.IsZero() || replay.last.IsZero():
		return false
	case at.After(replay.last):
		replay.lines = 0
		return false
	case at.Before(replay.first):
		return true
	case replay.lines > 0:
		replay.lines--
		return true
	default:
		return false
	}
}
