// SPDX-License-Identifier: Apache-2.0

// Package redact removes secrets from log lines and failure messages: private keys,
// tokens, passwords in URLs, keys of cloud providers.
//
// It cannot find every secret. It recognizes secrets by their form and by their names; a
// password that is printed without a name stays. It replaces each secret by a mark and
// keeps the rest of the line.
package redact

import "strings"

// Mark replaces a secret.
const Mark = "[redacted]"

// maxSources is how many sources may have a state. Further ones share one state, so that
// many sources cannot fill the memory.
const maxSources = 1024

// Filter removes secrets from the lines of several sources. It keeps a state only for
// sources with a secret or a line that continues. It is not safe for concurrent use.
type Filter struct {
	sources map[string]*state
	// spare is an unused state, which saves an allocation for every line.
	spare *state
}

// New returns a filter without any state.
func New() *Filter { return &Filter{sources: map[string]*state{}, spare: &state{}} }

// Line returns a line, or a part of one, without secrets. If the line continues, its end
// is held back until the next part, because a secret may be split between both.
func (f *Filter) Line(source, text string, continues bool) string {
	st, exists := f.sources[source]
	if !exists {
		if len(f.sources) >= maxSources {
			source = ""
			st = f.sources[source]
		}
		if st == nil {
			st = f.spare
		}
	}
	shown := st.take(text, !continues)
	switch {
	case st == f.spare && !st.idle():
		f.sources[source], f.spare = st, &state{}
	case st != f.spare && st.idle():
		delete(f.sources, source)
	}
	return shown
}

// Flush returns what was held back of a source whose last line is incomplete.
func (f *Filter) Flush(source string) string {
	st, exists := f.sources[source]
	if !exists {
		return ""
	}
	delete(f.sources, source)
	return st.take("", true)
}

// Text returns a text of one or more lines without secrets.
func Text(text string) string {
	filter := New()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = filter.Line("", line, false)
	}
	return strings.Join(lines, "\n")
}
