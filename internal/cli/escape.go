// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// escapeControl appends a text to printed, with control characters escaped. Those that a job
// or another user wrote could move the cursor, hide lines or set the window's title.
// They are printed as kubectl does: ^[ for escape, \r for a carriage return. Tabs and
// newlines stay, and our own colours become escape sequences. rest is the start of a
// character that is not complete yet.
func escapeControl(printed, text []byte) (safe, rest []byte) {
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
		// This is the escape of JSON, which may contain these characters unescaped.
		case unicode.IsControl(letter):
			printed = fmt.Appendf(printed, `\u%04x`, letter)
		// Eight-bit terminals also interpret single bytes as control characters.
		case letter == utf8.RuneError && size == 1 && text[0] < 0xa0:
			printed = fmt.Appendf(printed, `\x%02x`, text[0])
		default:
			printed = append(printed, text[:size]...)
		}
		text = text[size:]
	}
	return printed, nil
}
