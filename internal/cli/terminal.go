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

// colours of a terminal.
type colour string

const (
	plain  colour = ""
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	blue   colour = "34"
	purple colour = "35"
	cyan   colour = "36"
	bold   colour = "1"
	dim    colour = "2"
)

// paint colours a text, where the terminal shows colours.
func (terminal terminal) paint(with colour, text string) string {
	if !terminal.colour || with == plain || text == "" {
		return text
	}
	return "\x1b[" + string(with) + "m" + text + "\x1b[0m"
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
