// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"strings"
	"unicode/utf8"
)

// window is how many bytes at the end of a line that continues are held back. No rule
// needs more to recognize a secret.
const window = 8 << 10

// ending is how a secret ends that continues beyond the text.
type ending int

const (
	// notOpen: no secret continues.
	notOpen ending = iota
	// atWordEnd: at the first byte that cannot be in a token.
	atWordEnd
	// atSpace: at the first space or quote.
	atSpace
	// atQuote and atApostrophe: at the first unescaped one.
	atQuote
	atApostrophe
	// atBlockEnd: at the END line of a key, which may be many lines away.
	atBlockEnd
)

// secret is the position of a secret in a text.
type secret struct {
	// context is the start of the text by which the secret is recognized, such as its
	// name.
	context int
	// The secret is text[start:end].
	start, end int
	// ending is how the secret ends if it continues beyond the text.
	ending ending
}

// state is the state of a source between lines.
type state struct {
	// held is the end of a line that continues. It was not shown yet.
	held string
	// open is the ending of a secret that continues.
	open ending
	// partlyShown: a part of the line was shown already.
	partlyShown bool
	// marked: the line already has a mark for the secret that continues.
	marked bool
	block  blockLimit
}

func (s *state) idle() bool { return s.held == "" && s.open == notOpen && !s.partlyShown }

// take reads the next part of a line, and returns what may be shown. complete: the line
// ends here.
func (s *state) take(more string, complete bool) string {
	text := more
	if s.held != "" {
		text = s.held + more
		s.held = ""
	}
	stray := ""
	if complete && !s.partlyShown && s.open == notOpen {
		if begin, found := strayKeyLine(text); found {
			text, stray = text[:begin], Mark
		}
	}
	shown, rest := s.show(text, complete)
	if !complete {
		// A copy, so that the memory of the whole part can be freed.
		s.held = strings.Clone(rest)
		s.partlyShown = s.partlyShown || shown != ""
		return shown
	}
	if s.open == atBlockEnd {
		s.block.add(text, &s.open)
	} else {
		s.open = notOpen
	}
	s.partlyShown, s.marked = false, false
	return shown + stray
}

// show returns the text without secrets, and the rest that must be held back.
func (s *state) show(text string, complete bool) (shown, rest string) {
	at := 0
	var out strings.Builder
	if s.open != notOpen {
		length, ended := endOf(s.open, text, complete)
		if at = length; at > 0 && !s.marked {
			out.WriteString(Mark)
			s.marked = true
		}
		if !ended {
			return out.String(), text[at:]
		}
		s.open = notOpen
	}
	// Secrets that begin after the limit are checked again with the next part.
	limit := len(text)
	if !complete {
		limit = max(at, len(text)-window)
	}
	for {
		found, ok := nextSecret(text, at)
		if !ok || !complete && found.context >= limit {
			break
		}
		out.WriteString(text[at:found.start])
		if found.start < found.end {
			out.WriteString(Mark)
		}
		at = found.end
		if isOpen, rest := found.openEnd(text, complete); isOpen {
			s.open, s.marked, s.block = found.ending, found.start < found.end, blockLimit{}
			return out.String(), rest
		}
	}
	if complete {
		if at == 0 {
			return text, ""
		}
		out.WriteString(text[at:])
		return out.String(), ""
	}
	cut := runeStart(text, max(at, limit), at)
	out.WriteString(text[at:cut])
	return out.String(), text[cut:]
}

// openEnd reports whether the secret continues beyond the text. rest may be the
// beginning of its end.
func (s secret) openEnd(text string, complete bool) (isOpen bool, rest string) {
	if s.ending == notOpen || complete && s.ending != atBlockEnd {
		return false, ""
	}
	from := s.end
	if s.ending == atBlockEnd {
		from = s.start
	}
	length, ended := endOf(s.ending, text[from:], complete)
	return !ended, text[from+length:]
}

// endOf is how much of the text belongs to a secret that began before it, and whether
// the secret ends there. If the text is not complete, the length leaves out what may be
// the beginning of the end.
func endOf(ending ending, text string, complete bool) (length int, ended bool) {
	switch ending {
	case atWordEnd:
		length = span(text, isTokenByte)
	case atSpace:
		length = span(text, isValueByte)
	case atQuote:
		return quotedEnd(text, '"', complete)
	case atApostrophe:
		return quotedEnd(text, '\'', complete)
	case atBlockEnd:
		end, found := blockEnd(text)
		if !found && !complete {
			end = max(0, len(text)-maxBlockLineLength)
		}
		return end, found
	}
	return length, length < len(text)
}

// quotedEnd is the position of the closing quote, or the end of the text. A backslash at
// the end escapes the first byte of the next part.
func quotedEnd(text string, quote byte, complete bool) (length int, ended bool) {
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '\\':
			if at++; at == len(text) && !complete {
				return at - 1, false
			}
		case quote:
			return at, true
		}
	}
	return len(text), false
}

// runeStart is the last position that does not split a character.
func runeStart(text string, at, minimum int) int {
	for position := at; position > minimum && position > at-utf8.UTFMax && position < len(text); position-- {
		if utf8.RuneStart(text[position]) {
			return position
		}
	}
	return at
}

// span is how many bytes at the start of the text satisfy the condition.
func span(text string, is func(byte) bool) int {
	for at := range len(text) {
		if !is(text[at]) {
			return at
		}
	}
	return len(text)
}
