package cli

import (
	"os"
	"strings"

	"golang.org/x/term"
)

// terminal is what can be shown where the output goes.
type terminal struct {
	// width in characters; 0 where there is no terminal, and nothing is wrapped.
	width int
	// colour: some words are coloured.
	colour bool
	// live: what was printed can be printed over.
	live bool
}

// detectTerminal looks at where the output goes. NO_COLOR is honoured, and so is a
// terminal that says that it can do nothing. Where the talk goes to a file, nothing
// is printed over.
func detectTerminal(out, talk *os.File) terminal {
	descriptor := int(out.Fd())
	if !term.IsTerminal(descriptor) {
		return terminal{}
	}
	width, _, err := term.GetSize(descriptor)
	if err != nil || width < 20 {
		width = 80
	}
	dumb := os.Getenv("TERM") == "dumb"
	return terminal{width: width, live: !dumb && term.IsTerminal(int(talk.Fd())), colour: !dumb && os.Getenv("NO_COLOR") == ""}
}

// colour is a byte that no UTF-8 text contains, so that the output knows our own
// colours from escape sequences that a job wrote.
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

// sequences are what terminals read.
var sequences = map[colour]string{
	reset: "\x1b[0m", red: "\x1b[31m", green: "\x1b[32m", yellow: "\x1b[33m", blue: "\x1b[34m", purple: "\x1b[35m", cyan: "\x1b[36m",
	bold: "\x1b[1m", dim: "\x1b[2m",
}

// paint colours a text, where the terminal shows colours. It is for the output,
// which makes escape sequences of it.
func (terminal terminal) paint(with colour, text string) string {
	if !terminal.colour || with == plain || text == "" {
		return text
	}
	return string([]byte{byte(with)}) + text + string([]byte{byte(reset)})
}

// wrap breaks a text into lines that fit behind an indent. Words are not broken.
func (terminal terminal) wrap(text string, indent int) []string {
	var lines []string
	for _, paragraph := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && terminal.width > 0 && indent+len([]rune(line))+1+len([]rune(word)) > terminal.width {
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
