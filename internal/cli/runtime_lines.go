// SPDX-License-Identifier: Apache-2.0

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

// numbered splits a file into its documents.
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

// step matches a key of a path and the list indexes after it: name[2].
var step = regexp.MustCompile(`^([^\[]*)((?:\[\d+\])*)`)

// lineOf returns the line of a field, or of its closest parent in the file; 0 if there
// is none. It understands block style: for a field in braces it returns the line of the
// parent.
func (p *filePart) lineOf(path string) int {
	lines := strings.Split(p.text, "\n")
	found, from, indent := 0, 0, -1
	for _, word := range strings.Split(path, ".") {
		match := step.FindStringSubmatch(word)
		at := findKey(lines, from, indent, match[1])
		if at < 0 {
			break
		}
		found, from, indent = p.line+at, at+1, keyIndent(lines[at])
		for _, item := range strings.FieldsFunc(match[2], func(letter rune) bool { return letter == '[' || letter == ']' }) {
			number, _ := strconv.Atoi(item)
			if at = findItem(lines, from, indent, number); at < 0 {
				return found
			}
			found, from, indent = p.line+at, at, keyIndent(lines[at])-1
		}
	}
	return found
}

// keyIndent returns the column of the key of a line, after the dash of a list.
func keyIndent(line string) int {
	return len(line) - len(strings.TrimLeft(line, " -"))
}

// findKey returns the line of a key one level below indent, or -1 if that block does
// not contain it.
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

// findItem returns the line of a list item. The dash may be in the same column as the
// key of the list.
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
