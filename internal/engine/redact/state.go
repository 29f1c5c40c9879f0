package redact

import (
	"strings"
	"unicode/utf8"
)

// window is how much of the end of a line that continues is held back. Whatever a
// rule needs to see before it knows a secret is shorter.
const window = 8 << 10

// ending is how a secret ends that has not ended yet.
type ending int

const (
	// nowhere: no secret goes on.
	nowhere ending = iota
	// atWordEnd: with the first byte that is not of a token.
	atWordEnd
	// atSpace: with the first space or quote.
	atSpace
	// atQuote and atApostrophe: with the first of them that is not escaped.
	atQuote
	atApostrophe
	// atBlockEnd: with the END line of a key, which may be many lines away.
	atBlockEnd
)

// secret is where one is in a text.
type secret struct {
	// context is where that begins by which the secret is known, such as its name.
	context int
	// The secret is text[start:end].
	start, end int
	// goesOn says how it ends, if the text ends before it does.
	goesOn ending
}

// state is what is remembered of a source from line to line.
type state struct {
	// held is the end of a line that continues. It was not shown yet.
	held string
	// inside: what comes next is still secret.
	inside ending
	// begun: a part of the line was shown already.
	begun bool
	// marked: the mark of the secret that goes on was shown in this line.
	marked bool
	block  blockLimit
}

func (state *state) idle() bool { return state.held == "" && state.inside == nowhere && !state.begun }

// take is what may be shown, now that more of a line is known. complete: the line
// ends here.
func (state *state) take(more string, complete bool) string {
	text := more
	if state.held != "" {
		text = state.held + more
		state.held = ""
	}
	stray := ""
	if complete && !state.begun && state.inside == nowhere {
		if begin, found := strayKeyLine(text); found {
			text, stray = text[:begin], Mark
		}
	}
	shown, rest := state.show(text, complete)
	if !complete {
		// A copy, so that the piece it was cut from can go.
		state.held = strings.Clone(rest)
		state.begun = state.begun || shown != ""
		return shown
	}
	if state.inside == atBlockEnd {
		state.block.line(text, &state.inside)
	} else {
		state.inside = nowhere
	}
	state.begun, state.marked = false, false
	return shown + stray
}

// show is what of the text may be shown, and the rest that cannot be judged yet.
func (state *state) show(text string, complete bool) (shown, rest string) {
	at := 0
	var out strings.Builder
	if state.inside != nowhere {
		length, over := endOf(state.inside, text, complete)
		if at = length; at > 0 && !state.marked {
			out.WriteString(Mark)
			state.marked = true
		}
		if !over {
			return out.String(), text[at:]
		}
		state.inside = nowhere
	}
	// What begins after the limit is judged again when more is known.
	limit := len(text)
	if !complete {
		limit = max(at, len(text)-window)
	}
	for {
		found, any := next(text, at)
		if !any || !complete && found.context >= limit {
			break
		}
		out.WriteString(text[at:found.start])
		if found.start < found.end {
			out.WriteString(Mark)
		}
		at = found.end
		if on, rest := found.openEnd(text, complete); on {
			state.inside, state.marked, state.block = found.goesOn, found.start < found.end, blockLimit{}
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

// openEnd: the secret goes on beyond the text. rest is what belongs to its end, maybe.
func (found secret) openEnd(text string, complete bool) (on bool, rest string) {
	if found.goesOn == nowhere || complete && found.goesOn != atBlockEnd {
		return false, ""
	}
	from := found.end
	if found.goesOn == atBlockEnd {
		from = found.start
	}
	length, over := endOf(found.goesOn, text[from:], complete)
	return !over, text[from+length:]
}

// endOf is how much of the text belongs to a secret that goes on in it, and whether
// the secret ends there. What may be the beginning of its end is left over, if more is
// to come.
func endOf(how ending, text string, complete bool) (length int, over bool) {
	switch how {
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
			end = max(0, len(text)-longestBlockLine)
		}
		return end, found
	}
	return length, length < len(text)
}

// quotedEnd is where the quote is closed, or the end of the text. A backslash that it
// ends with belongs to what comes next.
func quotedEnd(text string, quote byte, complete bool) (length int, over bool) {
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

// runeStart is the last place that is not in the middle of a character.
func runeStart(text string, at, least int) int {
	for back := at; back > least && back > at-utf8.UTFMax && back < len(text); back-- {
		if utf8.RuneStart(text[back]) {
			return back
		}
	}
	return at
}

// span is how many bytes the text begins with that are of a kind.
func span(text string, is func(byte) bool) int {
	for at := range len(text) {
		if !is(text[at]) {
			return at
		}
	}
	return len(text)
}
