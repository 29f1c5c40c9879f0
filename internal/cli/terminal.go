// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strings"

	"golang.org/x/term"
)

// terminal describes the terminal that the output goes to.
type terminal struct {
	// width in characters; 0 without a terminal, where nothing is wrapped.
	width int
	// colour: the terminal shows colours.
	colour bool
	// live: lines can be updated in place.
	live bool
}

// detectTerminal detects the terminal of stdout. It honours NO_COLOR and TERM=dumb. If
// stderr is a file, lines are not updated in place.
func detectTerminal(out, errOut *os.File) terminal {
	descriptor := int(out.Fd())
	if !term.IsTerminal(descriptor) {
		return terminal{}
	}
	width, _, err := term.GetSize(descriptor)
	if err != nil || width < 20 {
		width = 80
	}
	dumb := os.Getenv("TERM") == "dumb"
	return terminal{width: width, live: !dumb && term.IsTerminal(int(errOut.Fd())), colour: !dumb && os.Getenv("NO_COLOR") == ""}
}

// colour is a byte that does not occur in UTF-8, so that output can distinguish our own
// colours from escape sequences that a job printed.
type colour byte

const plain colour = 0

const (
	reset colour = 0xf5 + iota
	red
	green
	yellow
	blue
	purple
	cyan
	bold
	dim
)

// sequences are the escape sequences of the colours.
var sequences = map[colour]string{
	reset: "\x1b[0m", red: "\x1b[31m", green: "\x1b[32m", yellow: "\x1b[33m", blue: "\x1b[34m", purple: "\x1b[35m", cyan: "\x1b[36m",
	bold: "\x1b[1m", dim: "\x1b[2m",
}

// paint colours a text if the terminal shows colours. The text must be printed to an
// output, which inserts the escape sequences.
func (t terminal) paint(c colour, text string) string {
	if !t.colour || c == plain || text == "" {
		return text
	}
	return string([]byte{byte(c)}) + text + string([]byte{byte(reset)})
}

// wrap breaks a text into lines that fit after an indent. It does not break words.
func (t terminal) wrap(text string, indent int) []string {
	var lines []string
	for _, paragraph := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && t.width > 0 && indent+len([]rune(line))+1+len([]rune(word)) > t.width {
				lines = append(lines, line)
				line = ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
		lines = append(lines, line)
	}
	return lines
}
