// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
)

// findingsPrinter prints findings for people.
type findingsPrinter struct {
	to       io.Writer
	terminal terminal
	calledAs string
	now      time.Time
}

func (p *findingsPrinter) diagnosis(diagnosis *preflight.Diagnosis) {
	fmt.Fprintf(p.to, "%s %s in namespace %s: %s, workers %s\n",
		diagnosis.Kind, p.terminal.paint(bold, diagnosis.Name), diagnosis.Namespace, p.terminal.paint(stateColour(diagnosis.State), diagnosis.State), diagnosis.Workers)
	switch {
	case diagnosis.Waiting != nil:
		for i, line := range waitingLines(diagnosis.Waiting, p.now, p.calledAs) {
			if i == 0 {
				line = "Waiting: " + line
			}
			p.lines(line, "  ")
		}
	case diagnosis.FailureMessage == "":
		p.lines(diagnosis.Explanation, "  ")
	}
	var ranked, notes, unknown []preflight.Finding
	for _, finding := range diagnosis.Findings {
		switch {
		case finding.Rank == preflight.NotKnown:
			unknown = append(unknown, finding)
		case finding.Rank == preflight.Note && finding.Cause == diagnosis.Explanation && (diagnosis.Waiting == nil || diagnosis.Waiting.Cause == preflight.WaitUnknown):
			// It is printed above.
		case finding.Rank == preflight.Note:
			notes = append(notes, finding)
		default:
			ranked = append(ranked, finding)
		}
	}
	fmt.Fprintln(p.to)
	if len(ranked) == 0 {
		fmt.Fprintln(p.to, p.terminal.paint(green, "No problems found."))
	}
	for i, finding := range ranked {
		if i > 0 {
			fmt.Fprintln(p.to)
		}
		p.numbered(i+1, &finding)
	}
	p.process(diagnosis.FailedProcess)
	p.brief("Notes:", notes)
	p.brief("Not known:", unknown)
	p.conditions(diagnosis.Conditions)
}

// process prints the process that failed, and its last output.
func (p *findingsPrinter) process(failed *training.FailedProcess) {
	if failed == nil {
		return
	}
	if named := processName(failed); named != "" {
		fmt.Fprintf(p.to, "\n%s %s\n", p.terminal.paint(bold, "Failed process:"), named)
	}
	if len(failed.LastLines) > 0 {
		fmt.Fprintf(p.to, "\n%s\n", p.terminal.paint(bold, "Last lines of output:"))
	}
	for _, line := range failed.LastLines {
		p.lines(line, "  ")
	}
}

// conditions prints the conditions of the job, one per line.
func (p *findingsPrinter) conditions(conditions []preflight.Answered) {
	if len(conditions) == 0 {
		return
	}
	fmt.Fprintf(p.to, "\n%s\n", p.terminal.paint(bold, "Conditions:"))
	for _, condition := range conditions {
		text := fmt.Sprintf("%s is %s (%s): %s", condition.Type, condition.Status, condition.Reason, condition.Message)
		fmt.Fprintf(p.to, "  - %s\n", strings.Join(p.terminal.wrap(text, 4), "\n    "))
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
func (p *findingsPrinter) numbered(number int, finding *preflight.Finding) {
	rank := "[" + finding.Rank.String() + "]"
	title := p.terminal.wrap(finding.Title, len(rank)+4)
	for i := range title {
		title[i] = p.terminal.paint(bold, title[i])
	}
	fmt.Fprintf(p.to, "%d. %s %s\n", number, p.terminal.paint(rankColour(finding.Rank), rank), strings.Join(title, "\n   "))
	p.lines(finding.Cause, "   ")
	p.details(finding, "   ")
}

func (p *findingsPrinter) details(finding *preflight.Finding, indent string) {
	for _, detail := range []struct{ name, text string }{
		{"Object", finding.Object}, {"Fix", asTyped(p.calledAs, finding.Fix)}, {"More", finding.Documentation},
	} {
		if detail.text != "" {
			p.lines(fmt.Sprintf("%s: %s", detail.name, detail.text), indent)
		}
	}
}

// asTyped replaces odh in commands by the name that the user typed.
func asTyped(calledAs, fix string) string {
	if rest, found := strings.CutPrefix(fix, "odh "); found {
		return calledAs + " " + rest
	}
	return strings.ReplaceAll(fix, "see odh ", "see "+calledAs+" ")
}

// brief prints findings that need no action.
func (p *findingsPrinter) brief(title string, findings []preflight.Finding) {
	if len(findings) == 0 {
		return
	}
	fmt.Fprintf(p.to, "\n%s\n", p.terminal.paint(bold, title))
	for _, finding := range findings {
		lines := p.terminal.wrap(strings.TrimSuffix(fmt.Sprintf("%s: %s", finding.Title, strings.TrimPrefix(finding.Cause, "not known: ")), ": "), 4)
		fmt.Fprintf(p.to, "  - %s\n", strings.Join(lines, "\n    "))
	}
}

// lines prints a text with an indent.
func (p *findingsPrinter) lines(text, indent string) {
	if text == "" {
		return
	}
	for _, line := range p.terminal.wrap(text, len(indent)) {
		fmt.Fprintln(p.to, indent+line)
	}
}
