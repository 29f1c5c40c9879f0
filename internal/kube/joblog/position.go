// SPDX-License-Identifier: Apache-2.0

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
func (p *position) advance(at time.Time) {
	p.pieces = 0
	if at.IsZero() {
		return
	}
	if p.first.IsZero() {
		p.first, p.second = at, at.Unix()
	}
	if at.After(p.last) {
		p.last = at
	}
	switch second := at.Unix(); {
	case second > p.second+1:
		p.counts = [2]int{0, 1}
		p.second = second
	case second == p.second+1:
		p.counts = [2]int{p.counts[1], 1}
		p.second = second
	case second == p.second:
		p.counts[1]++
	case second == p.second-1:
		p.counts[0]++
	}
}

// begun reports whether any line was read.
func (p *position) begun() bool { return !p.first.IsZero() }

// since is the second to continue from.
func (p *position) since() time.Time { return time.Unix(p.second-1, 0).UTC() }

// replay returns what to skip in a stream that starts at since.
func (p *position) replay() replay {
	if !p.begun() {
		return replay{pieces: p.pieces}
	}
	return replay{first: p.first, last: p.last, lines: p.counts[0] + p.counts[1], pieces: p.pieces}
}

// replay skips lines that were read before.
type replay struct {
	first, last   time.Time
	lines, pieces int
}

// known reports whether a line was read before. A line that is newer than all of them is
// new, even if fewer lines came before it than expected: the log may have been rotated.
func (r *replay) known(at time.Time) bool {
	switch {
	case at.IsZero() || r.last.IsZero():
		return false
	case at.After(r.last):
		r.lines = 0
		return false
	case at.Before(r.first):
		return true
	case r.lines > 0:
		r.lines--
		return true
	default:
		return false
	}
}
