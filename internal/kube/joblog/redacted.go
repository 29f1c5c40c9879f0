// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/trireme-mpi/trireme/internal/engine/redact"
)

// Redacted removes secrets from lines. The ranks of a container are separate sources:
// they may print the same key at the same time.
func Redacted(lines iter.Seq2[Line, error]) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		filter := redact.New()
		open := map[string]Line{}
		for line, err := range lines {
			if err != nil {
				if flush(filter, open, yield) {
					yield(line, err)
				}
				return
			}
			source := line.Pod + "/" + line.Container + "/" + strconv.Itoa(line.Rank)
			line.Text = filter.Line(source, line.Text, line.Continues)
			if line.Continues {
				open[source] = line
			} else {
				delete(open, source)
			}
			if !yield(line, nil) {
				return
			}
		}
		flush(filter, open, yield)
	}
}

// flush completes lines that were cut off. It returns false if the reader wants no more.
func flush(filter *redact.Filter, open map[string]Line, yield func(Line, error) bool) bool {
	for _, source := range slices.Sorted(maps.Keys(open)) {
		line := open[source]
		line.Text, line.Continues = filter.Flush(source), false
		if !yield(line, nil) {
			return false
		}
	}
	return true
}
