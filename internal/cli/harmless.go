package cli

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// harmless appends a text to what is printed. Control characters that a job or
// another user wrote could move the cursor, hide lines or set the window's title;
// they are spelled out, as kubectl does: ^[ for escape, \r for a carriage return.
// Tabs and newlines stay, and colours of our own become the terminal's. The rest
// is the start of a character whose end is not written yet.
func harmless(printed, text []byte) (safe, rest []byte) {
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			return printed, text
		}
		letter, size := utf8.DecodeRune(text)
		switch sequence, isColour := sequences[colour(text[0])]; {
		case isColour:
			printed = append(printed, sequence...)
		case letter == '\r':
			printed = append(printed, `\r`...)
		case letter == '\t', letter == '\n':
			printed = append(printed, byte(letter))
		case letter < ' ':
			printed = append(printed, '^', byte(letter)+'@')
		// This is JSON's own form, and JSON may contain these characters as they are.
		case unicode.IsControl(letter):
			printed = fmt.Appendf(printed, `\u%04x`, letter)
		// Terminals of eight bits read single bytes as control characters, too.
		case letter == utf8.RuneError && size == 1 && text[0] < 0xa0:
			printed = fmt.Appendf(printed, `\x%02x`, text[0])
		default:
			printed = append(printed, text[:size]...)
		}
		text = text[size:]
	}
	return printed, nil
}
