// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"
)

// Outcome is how a field was converted.
type Outcome string

const (
	// Mapped: the field is in the TrainJob.
	Mapped Outcome = "mapped"
	// Moved: the field is in the runtime.
	Moved Outcome = "moved"
	// Dropped: the field is in neither. Why says what is lost, if anything.
	Dropped Outcome = "dropped"
	// Default: the MPIJob does not set the field, and the default of a TrainJob differs.
	Default Outcome = "default"
	// Review: a user must review the field.
	Review Outcome = "look"
)

// Entry is the conversion of a field of an MPIJob, and of the fields below it that have
// no entry of their own.
type Entry struct {
	// Path of the field; empty for an error in the result that no field caused.
	Path    string  `json:"path,omitempty"`
	Outcome Outcome `json:"outcome"`
	// To is where the field is now: a kind, a space and a path.
	To string `json:"to,omitempty"`
	// Why explains the outcome, if needed.
	Why string `json:"why,omitempty"`
	// rewritten: the value at To differs from the old one but means the same.
	rewritten bool
}

// Report is the field mapping of an MPIJob.
type Report struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Runtime is the kind and name of the TrainJob's runtime.
	Runtime string  `json:"runtime"`
	Entries []Entry `json:"entries"`
}

// Of returns the entries with an outcome.
func (r *Report) Of(outcome Outcome) (entries []Entry) {
	for _, entry := range r.Entries {
		if entry.Outcome == outcome {
			entries = append(entries, entry)
		}
	}
	return entries
}

// NeedsReview reports whether a user must review fields before the TrainJob is used.
func (r *Report) NeedsReview() bool { return len(r.Of(Review)) > 0 }

// sort sorts the entries by path.
func (r *Report) sort() {
	slices.SortStableFunc(r.Entries, func(a, b Entry) int {
		return slices.CompareFunc(segments(a.Path), segments(b.Path), compareSegments)
	})
}

// covers reports whether an entry is about a path.
func (e *Entry) covers(path string) bool { return isBelow(path, e.Path) }

// isBelow reports whether a path equals another or is below it.
func isBelow(path, above string) bool {
	rest, below := strings.CutPrefix(path, above)
	return below && above != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
