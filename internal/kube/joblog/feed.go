// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// feed reads the log of one container, stream after stream, each line once.
type feed struct {
	source  Source
	origin  origin
	options Options
	// position is kept when the container is restarted: lines of another run are newer
	// than all that were read.
	position position
	// latest is the time of the last line.
	latest time.Time
	// longest is how much of one line is held; 0 means maxPiece.
	longest int
}

// reading is how one stream is read.
type reading struct {
	follow bool
	// previous reads the run before the newest.
	previous bool
	// last: no other stream of this run will be read, so the text at its end is a line even
	// without a newline.
	last bool
}

// cleared is what the kubelet returns instead of a log that it has deleted: it deletes
// earlier runs of a pod that has finished.
const cleared = "unable to retrieve container logs for "

var errCleared = errors.New("its node has deleted the log")

// errStopped: the consumer has stopped.
var errStopped = errors.New("the consumer has stopped")

// read passes on the lines of one stream that were not read before. It returns nil at
// the end of the stream.
func (f *feed) read(ctx context.Context, how reading, pass func(Line) bool) error {
	stream, err := f.source.Open(ctx, f.origin.pod, f.logOptions(how))
	if err != nil {
		return err
	}
	defer stream.Close()
	lines := newScanner(stream, cmp.Or(f.longest, maxPiece))
	replay := f.position.replay()
	for {
		err := f.readLine(lines, &replay, how.last, pass)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine reads one line, in several pieces if it is long.
func (f *feed) readLine(lines *scanner, replay *replay, last bool, pass func(Line) bool) error {
	var at time.Time
	known := false
	for piece := 0; ; piece++ {
		text, complete, err := lines.next()
		if err != nil && (text == "" || !last || !errors.Is(err, io.EOF)) {
			return err
		}
		if piece == 0 {
			var stamped bool
			if at, text, stamped = splitTime(text); stamped {
				known = replay.known(at)
			} else if strings.HasPrefix(text, cleared) {
				return errCleared
			}
			at = f.order(at, known)
		}
		ends := complete || err != nil
		if !known && piece >= replay.pieces && !f.pass(Line{Time: at, Text: text, Continues: !ends}, pass) {
			return errStopped
		}
		if ends {
			f.finishLine(at, known, replay)
			return err
		}
		if !known {
			f.position.pieces = max(f.position.pieces, piece+1)
		}
	}
}

// order returns the time of a line. A line without one, from the kubelet itself, gets
// the time of the line before it.
func (f *feed) order(at time.Time, known bool) time.Time {
	if at.IsZero() {
		return f.latest
	}
	if !known {
		f.latest = at
	}
	return at
}

func (f *feed) finishLine(at time.Time, known bool, replay *replay) {
	if !known {
		replay.pieces = 0
		f.position.advance(at)
	}
}

func (f *feed) pass(line Line, pass func(Line) bool) bool {
	if line.Time.Before(f.options.Since) && !line.Time.IsZero() {
		return true
	}
	line.Pod, line.Container = f.origin.pod, f.origin.container
	line.Role, line.Worker = f.origin.place.role, f.origin.place.worker
	line.Rank = NoRank
	return pass(line)
}

func (f *feed) logOptions(how reading) *corev1.PodLogOptions {
	options := &corev1.PodLogOptions{Container: f.origin.container, Timestamps: true, Follow: how.follow, Previous: how.previous}
	if f.position.begun() {
		options.SinceTime = &metav1.Time{Time: f.position.since()}
		return options
	}
	options.TailLines = f.options.Tail
	if !f.options.Since.IsZero() {
		options.SinceTime = &metav1.Time{Time: f.options.Since.Truncate(time.Second)}
	}
	return options
}
