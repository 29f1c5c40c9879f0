// Package redact takes secrets out of log lines, and out of what is told of failures,
// before anybody else reads them: private keys, tokens, passwords in addresses, keys of
// clouds.
//
// It is a net, not a wall. It knows what secrets look like and what they are called;
// a password that is printed like any other word goes through. What it finds is
// replaced by a mark, and the rest of the line stays.
package redact

import "strings"

// Mark stands where a secret was.
const Mark = "[redacted]"

// mostSources is how many sources may be in the middle of something. Those beyond
// share one state, so that nobody can fill the memory with names of sources.
const mostSources = 1024

// Filter takes secrets out of the lines of several sources. It remembers of each only
// what goes on in its next line. It is not for use by several goroutines.
type Filter struct {
	sources map[string]*state
	// spare is a state that nobody uses.
	spare *state
}

// New is a filter that has read nothing.
func New() *Filter { return &Filter{sources: map[string]*state{}, spare: &state{}} }

// Line is what may be shown of a line. Where a line continues, its end is held back
// until the next piece tells whether a secret is cut in two.
func (filter *Filter) Line(source, text string, continues bool) string {
	known, kept := filter.sources[source]
	if !kept {
		if len(filter.sources) >= mostSources {
			source = ""
			known = filter.sources[source]
		}
		if known == nil {
			known = filter.spare
		}
	}
	shown := known.take(text, !continues)
	switch {
	case known == filter.spare && !known.idle():
		filter.sources[source], filter.spare = known, &state{}
	case known != filter.spare && known.idle():
		delete(filter.sources, source)
	}
	return shown
}

// Flush is what was held back of a source whose line ends without an end.
func (filter *Filter) Flush(source string) string {
	known, kept := filter.sources[source]
	if !kept {
		return ""
	}
	delete(filter.sources, source)
	return known.take("", true)
}

// Text is what may be shown of a text of one line or of several.
func Text(text string) string {
	filter := New()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = filter.Line("", line, false)
	}
	return strings.Join(lines, "\n")
}
