package joblog

import "time"

// position is how far the log of one run of a container has been read, so that another
// stream can continue there.
//
// An API server only accepts whole seconds for sinceTime, and the times in a log are not
// strictly sorted: stdout and stderr get their times separately. So reading continues
// from the second before the last line, and skips as many lines as were already read
// since then.
type position struct {
	// first is the time of the first line, last the latest time.
	first, last time.Time
	// second is that of the latest line; counts are the lines in the second before it and
	// in itself.
	second int64
	counts [2]int
	// pieces is how many pieces of an incomplete line were read.
	pieces int
}

// advance records a complete line.
func (position *position) advance(at time.Time) {
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

// begun reports whether any line was read.
func (position *position) begun() bool { return !position.first.IsZero() }

// since is the second to continue from.
func (position *position) since() time.Time { return time.Unix(position.second-1, 0).UTC() }

// replay returns what to skip in a stream that starts at since.
func (position *position) replay() replay {
	if !position.begun() {
		return replay{pieces: position.pieces}
	}
	return replay{first: position.first, last: position.last, lines: position.counts[0] + position.counts[1], pieces: position.pieces}
}

// replay skips lines that were read before.
type replay struct {
	first, last   time.Time
	lines, pieces int
}

// known reports whether a line was read before. A line that is newer than all of them is
// new, even if fewer lines came before it than expected: the log may have been rotated.
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
