package migrate

import (
	"slices"
	"strings"
)

// Outcome is what became of a field.
type Outcome string

const (
	// Mapped: the TrainJob has it.
	Mapped Outcome = "mapped"
	// Moved: the runtime has it.
	Moved Outcome = "moved"
	// Dropped: nothing has it, and nothing is lost by that, or what is lost is said.
	Dropped Outcome = "dropped"
	// Default: the MPIJob does not say it, and a TrainJob that does not say it does
	// something else.
	Default Outcome = "default"
	// Look: a person must look.
	Look Outcome = "look"
)

// Entry is what became of one field of an MPIJob and of everything below it that
// has no entry of its own.
type Entry struct {
	// Path of the field. Of a fault of the result that no field caused, it is empty.
	Path    string  `json:"path,omitempty"`
	Outcome Outcome `json:"outcome"`
	// To is where it is now: a kind, a space and a path.
	To string `json:"to,omitempty"`
	// Why it did not simply go where it belongs.
	Why string `json:"why,omitempty"`
	// rewritten: what is at To says the same in other words.
	rewritten bool
}

// Report is what became of an MPIJob.
type Report struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Runtime is the kind and name of the runtime that the TrainJob names.
	Runtime string  `json:"runtime"`
	Entries []Entry `json:"entries"`
}

// Of are the entries with an outcome.
func (report *Report) Of(outcome Outcome) (found []Entry) {
	for _, entry := range report.Entries {
		if entry.Outcome == outcome {
			found = append(found, entry)
		}
	}
	return found
}

// NeedsPerson tells whether somebody must look before the TrainJob is used.
func (report *Report) NeedsPerson() bool { return len(report.Of(Look)) > 0 }

// sort puts the entries in the order of their paths.
func (report *Report) sort() {
	slices.SortStableFunc(report.Entries, func(a, b Entry) int {
		return slices.CompareFunc(segments(a.Path), segments(b.Path), compareSegments)
	})
}

// covers tells whether an entry is about a path.
func (entry *Entry) covers(path string) bool { return isBelow(path, entry.Path) }

// isBelow tells whether a path is another or leads through it.
func isBelow(path, above string) bool {
	rest, below := strings.CutPrefix(path, above)
	return below && above != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
