package cli

import (
	"fmt"
	"strings"

	"github.com/trireme-mpi/trireme/internal/engine/migrate"
)

// outcomes in the order in which a reader needs them.
var outcomes = []struct {
	migrate.Outcome
	title  string
	colour colour
}{
	{migrate.Look, "A person must look", yellow},
	{migrate.Default, "Not said, and different by default", cyan},
	{migrate.Dropped, "Dropped", plain},
	{migrate.Moved, "Moved to the runtime", plain},
	{migrate.Mapped, "Mapped to the TrainJob", plain},
}

// migrationReport is the report as people read it.
func (terminal terminal) migrationReport(report *migrations) string {
	var text strings.Builder
	for _, job := range report.Jobs {
		text.WriteString(terminal.jobReport(job))
		text.WriteString("\n")
	}
	for _, other := range report.PassedOn {
		fmt.Fprintf(&text, "%s is no MPIJob, and is passed on as it is.\n", other)
	}
	for _, line := range terminal.wrap("An MPIJob and a TrainJob of one name cannot be in one namespace: delete the MPIJob before you create the TrainJob.", 0) {
		fmt.Fprintln(&text, line)
	}
	return text.String()
}

func (terminal terminal) jobReport(report *migrate.Report) string {
	var text strings.Builder
	name := report.Name
	if report.Namespace != "" {
		name = report.Namespace + "/" + name
	}
	for _, line := range terminal.wrap(fmt.Sprintf("MPIJob %s becomes TrainJob %s with %s", name, report.Name, report.Runtime), 0) {
		fmt.Fprintln(&text, terminal.paint(bold, line))
	}
	for _, outcome := range outcomes {
		entries := report.Of(outcome.Outcome)
		if len(entries) == 0 {
			continue
		}
		fmt.Fprintf(&text, "%s\n", terminal.paint(outcome.colour, fmt.Sprintf("%s (%d):", outcome.title, len(entries))))
		for _, entry := range entries {
			terminal.writeEntry(&text, entry)
		}
	}
	return text.String()
}

// writeEntry writes a field, below it where it went, and below that why.
func (terminal terminal) writeEntry(text *strings.Builder, entry migrate.Entry) {
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
	for _, line := range terminal.wrap(entry.Why, len(deeper)) {
		fmt.Fprintf(text, "%s%s\n", deeper, line)
	}
}
