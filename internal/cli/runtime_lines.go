package cli

import (
	"regexp"
	"strconv"
	"strings"
)

// filePart is one document of a file.
type filePart struct {
	// line is the number of its first line.
	line int
	text string
}

// numbered takes a file apart into its documents.
func numbered(content string) (parts []filePart) {
	part := filePart{line: 1}
	number := 0
	for line := range strings.Lines(content) {
		number++
		if strings.HasPrefix(line, "---") && strings.TrimSpace(strings.TrimLeft(line, "-")) == "" {
			parts = append(parts, part)
			part = filePart{line: number + 1}
			continue
		}
		part.text += line
	}
	return append(parts, part)
}

// step is a key of a path, and the items of lists behind it: name[2].
var step = regexp.MustCompile(`^([^\[]*)((?:\[\d+\])*)`)

// lineOf is the line that a field stands on, or that of the last field above it which
// is there; 0 if none is. It reads the block style that people write: a field in
// braces is on the line of what holds it.
func (part *filePart) lineOf(path string) int {
	lines := strings.Split(part.text, "\n")
	found, from, indent := 0, 0, -1
	for _, word := range strings.Split(path, ".") {
		match := step.FindStringSubmatch(word)
		at := findKey(lines, from, indent, match[1])
		if at < 0 {
			break
		}
		found, from, indent = part.line+at, at+1, keyIndent(lines[at])
		for _, item := range strings.FieldsFunc(match[2], func(letter rune) bool { return letter == '[' || letter == ']' }) {
			number, _ := strconv.Atoi(item)
			if at = findItem(lines, from, indent, number); at < 0 {
				return found
			}
			found, from, indent = part.line+at, at, keyIndent(lines[at])-1
		}
	}
	return found
}

// keyIndent is where the key of a line begins, behind the dash of a list.
func keyIndent(line string) int {
	return len(line) - len(strings.TrimLeft(line, " -"))
}

// findKey is the line of a key that stands right below indent, or -1 if what stands
// there has ended.
func findKey(lines []string, from, indent int, key string) int {
	below := -1
	for at := from; at < len(lines); at++ {
		trimmed := strings.TrimLeft(lines[at], " -")
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		here := keyIndent(lines[at])
		if here <= indent {
			return -1
		}
		if below < 0 {
			below = here
		}
		if here == below && (strings.HasPrefix(trimmed, key+":") || strings.HasPrefix(trimmed, `"`+key+`":`)) {
			return at
		}
	}
	return -1
}

// findItem is the line of an item of a list. The dash may stand below the first
// letter of the key that holds it.
func findItem(lines []string, from, indent, number int) int {
	dash := -1
	for at := from; at < len(lines); at++ {
		trimmed := strings.TrimLeft(lines[at], " ")
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		here := len(lines[at]) - len(trimmed)
		isItem := strings.HasPrefix(trimmed, "-")
		if here < indent || here == indent && !isItem {
			return -1
		}
		if dash < 0 {
			dash = here
		}
		if isItem && here == dash {
			if number == 0 {
				return at
			}
			number--
		}
	}
	return -1
}
