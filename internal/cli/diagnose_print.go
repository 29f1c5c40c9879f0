package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
)

// findingsPrinter prints findings for people.
type findingsPrinter struct {
	to       io.Writer
	terminal terminal
	calledAs string
}

func (printer *findingsPrinter) diagnosis(found *preflight.Diagnosis) {
	fmt.Fprintf(printer.to, "%s %s in namespace %s: %s, workers %s\n",
		found.Kind, printer.terminal.paint(bold, found.Name), found.Namespace, printer.terminal.paint(stateColour(found.State), found.State), found.Workers)
	if found.FailureMessage == "" {
		printer.lines(found.Explanation, "  ")
	}
	var ranked, notes, unknown []preflight.Finding
	for _, finding := range found.Findings {
		switch {
		case finding.Rank == preflight.NotKnown:
			unknown = append(unknown, finding)
		case finding.Rank == preflight.Note && finding.Cause == found.Explanation:
			// It is printed above.
		case finding.Rank == preflight.Note:
			notes = append(notes, finding)
		default:
			ranked = append(ranked, finding)
		}
	}
	fmt.Fprintln(printer.to)
	if len(ranked) == 0 {
		fmt.Fprintln(printer.to, printer.terminal.paint(green, "No problems found."))
	}
	for i, finding := range ranked {
		if i > 0 {
			fmt.Fprintln(printer.to)
		}
		printer.numbered(i+1, &finding)
	}
	printer.process(found.FailedProcess)
	printer.brief("Notes:", notes)
	printer.brief("Not known:", unknown)
	printer.conditions(found.Conditions)
}

// process prints the process that failed, and its last output.
func (printer *findingsPrinter) process(failed *training.FailedProcess) {
	if failed == nil {
		return
	}
	if named := processName(failed); named != "" {
		fmt.Fprintf(printer.to, "\n%s %s\n", printer.terminal.paint(bold, "Failed process:"), named)
	}
	if len(failed.LastLines) > 0 {
		fmt.Fprintf(printer.to, "\n%s\n", printer.terminal.paint(bold, "Last lines of output:"))
	}
	for _, line := range failed.LastLines {
		printer.lines(line, "  ")
	}
}

// conditions prints the conditions of the job, one per line.
func (printer *findingsPrinter) conditions(told []preflight.Answered) {
	if len(told) == 0 {
		return
	}
	fmt.Fprintf(printer.to, "\n%s\n", printer.terminal.paint(bold, "Conditions:"))
	for _, each := range told {
		text := fmt.Sprintf("%s is %s (%s): %s", each.Type, each.Status, each.Reason, each.Message)
		fmt.Fprintf(printer.to, "  - %s\n", strings.Join(printer.terminal.wrap(text, 4), "\n    "))
	}
}

func rankColour(rank preflight.Rank) colour {
	switch rank {
	case preflight.Cause, preflight.Certain:
		return red
	case preflight.Likely:
		return yellow
	default:
		return cyan
	}
}

// numbered prints a finding with all its details.
func (printer *findingsPrinter) numbered(number int, finding *preflight.Finding) {
	rank := "[" + finding.Rank.String() + "]"
	title := printer.terminal.wrap(finding.Title, len(rank)+4)
	for i := range title {
		title[i] = printer.terminal.paint(bold, title[i])
	}
	fmt.Fprintf(printer.to, "%d. %s %s\n", number, printer.terminal.paint(rankColour(finding.Rank), rank), strings.Join(title, "\n   "))
	printer.lines(finding.Cause, "   ")
	printer.details(finding, "   ")
}

func (printer *findingsPrinter) details(finding *preflight.Finding, indent string) {
	for _, detail := range []struct{ name, text string }{
		{"Object", finding.Object}, {"Fix", printer.asTyped(finding.Fix)}, {"More", finding.Documentation},
	} {
		if detail.text != "" {
			printer.lines(fmt.Sprintf("%s: %s", detail.name, detail.text), indent)
		}
	}
}

// asTyped replaces odh in commands by the name that the user typed.
func (printer *findingsPrinter) asTyped(fix string) string {
	if rest, found := strings.CutPrefix(fix, "odh "); found {
		return printer.calledAs + " " + rest
	}
	return strings.ReplaceAll(fix, "see odh ", "see "+printer.calledAs+" ")
}

// brief prints findings that need no action.
func (printer *findingsPrinter) brief(title string, findings []preflight.Finding) {
	if len(findings) == 0 {
		return
	}
	fmt.Fprintf(printer.to, "\n%s\n", printer.terminal.paint(bold, title))
	for _, finding := range findings {
		lines := printer.terminal.wrap(strings.TrimSuffix(fmt.Sprintf("%s: %s", finding.Title, strings.TrimPrefix(finding.Cause, "not known: ")), ": "), 4)
		fmt.Fprintf(printer.to, "  - %s\n", strings.Join(lines, "\n    "))
	}
}

// lines prints a text with an indent.
func (printer *findingsPrinter) lines(text, indent string) {
	if text == "" {
		return
	}
	for _, line := range printer.terminal.wrap(text, len(indent)) {
		fmt.Fprintln(printer.to, indent+line)
	}
}
