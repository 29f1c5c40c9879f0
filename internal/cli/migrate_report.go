// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/trireme-mpi/trireme/internal/engine/migrate"
)

// outcomes in the order of the report: what needs attention comes first.
var outcomes = []struct {
	migrate.Outcome
	title  string
	colour colour
}{
	{migrate.Review, "Needs review", yellow},
	{migrate.Default, "Not set, with a different default", cyan},
	{migrate.Dropped, "Dropped", plain},
	{migrate.Moved, "Moved to the runtime", plain},
	{migrate.Mapped, "Mapped to the TrainJob", plain},
}

// migrationReport returns the report as text.
func (t terminal) migrationReport(report *migrations) string {
	var text strings.Builder
	for _, job := range report.Jobs {
		text.WriteString(t.jobReport(job))
		text.WriteString("\n")
	}
	for _, other := range report.PassedOn {
		fmt.Fprintf(&text, "%s is not an MPIJob and is passed through unchanged.\n", other)
	}
	for _, line := range t.wrap("An MPIJob and a TrainJob in the same namespace cannot have the same name: delete the MPIJob before you create the TrainJob.", 0) {
		fmt.Fprintln(&text, line)
	}
	return text.String()
}

func (t terminal) jobReport(report *migrate.Report) string {
	var text strings.Builder
	name := report.Name
	if report.Namespace != "" {
		name = report.Namespace + "/" + name
	}
	for _, line := range t.wrap(fmt.Sprintf("MPIJob %s becomes TrainJob %s with %s", name, report.Name, report.Runtime), 0) {
		fmt.Fprintln(&text, t.paint(bold, line))
	}
	for _, outcome := range outcomes {
		entries := report.Of(outcome.Outcome)
		if len(entries) == 0 {
			continue
		}
		fmt.Fprintf(&text, "%s\n", t.paint(outcome.colour, fmt.Sprintf("%s (%d):", outcome.title, len(entries))))
		for _, entry := range entries {
			t.writeEntry(&text, entry)
		}
	}
	return text.String()
}

// writeEntry writes a field, its new path and the reason, each on its own line.
func (t terminal) writeEntry(text *strings.Builder, entry migrate.Entry) {
	const indent, deeper = "  ", "      "
	path := entry.Path
	if path == "" {
		path, entry.To = entry.To, ""
	}
	fmt.Fprintf(text, "%s%s\n", indent, path)
	if entry.To != "" {
		fmt.Fprintf(text, "%s-> %s\n", deeper, entry.To)
	}
	if entry.Why == "" {
		return
	}
	for _, line := range t.wrap(entry.Why, len(deeper)) {
		fmt.Fprintf(text, "%s%s\n", deeper, line)
	}
}
