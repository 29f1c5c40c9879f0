// SPDX-License-Identifier: Apache-2.0

package redact

import "strings"

const (
	// maxBlockLineLength is how long a BEGIN or END line may be.
	maxBlockLineLength = 128
	// A block without an END line ends after so many lines or bytes, ...
	maxBlockLines = 1024
	maxBlockBytes = 128 << 10
	// ... or sooner, after so many lines in a row that do not look like a key.
	maxPlainLines = 32
	// minKeyRun is how many bytes of base64 a line of a key has at least, except the last.
	minKeyRun = 40
)

// blockLimit counts the lines of a key block whose END line was not read yet. plain
// counts those in a row that do not look like a key.
type blockLimit struct{ lines, plain, bytes int }

// add counts a line, and closes the block if a limit is exceeded.
func (l *blockLimit) add(text string, open *ending) {
	l.lines++
	l.bytes += len(text)
	l.plain++
	if longestRun(text) >= minKeyRun {
		l.plain = 0
	}
	if l.lines > maxBlockLines || l.bytes > maxBlockBytes || l.plain > maxPlainLines {
		*open = notOpen
	}
}

func longestRun(text string) int {
	longest := 0
	for at := 0; at < len(text); at++ {
		run := span(text[at:], isBase64)
		longest = max(longest, run)
		at += run
	}
	return longest
}

// keyBlock is the private key whose BEGIN is at this position, such as
// -----BEGIN RSA PRIVATE KEY-----, on one line or on many.
func keyBlock(text string, at int) (secret, bool) {
	if !strings.HasPrefix(text[at:], "BEGIN ") || at == 0 || text[at-1] != '-' && text[at-1] != ' ' {
		return secret{}, false
	}
	header, isKey := keyLine(text[at+len("BEGIN "):])
	if !isKey {
		return secret{}, false
	}
	start := at + len("BEGIN ") + header
	length, _ := endOf(atBlockEnd, text[start:], true)
	return secret{context: at, start: start, end: start + length, ending: atBlockEnd}, length > 0 || start == len(text)
}

// blockEnd is the position of the key's END line.
func blockEnd(text string) (int, bool) {
	for from := 0; ; {
		at := strings.Index(text[from:], "END ")
		if at < 0 {
			return len(text), false
		}
		at += from
		if _, isKey := keyLine(text[at+len("END "):]); isKey {
			return at - len(text[:at]) + len(strings.TrimRight(text[:at], "- ")), true
		}
		from = at + len("END ")
	}
}

// keyLine is the length of the words and the dashes of a BEGIN or END line, if it is
// that of a private key.
func keyLine(text string) (int, bool) {
	text = text[:min(len(text), maxBlockLineLength)]
	words := span(text, func(char byte) bool { return char >= 'A' && char <= 'Z' || char >= '0' && char <= '9' || char == ' ' })
	if !strings.Contains(text[:words], "PRIVATE KEY") {
		return 0, false
	}
	dashes := span(text[words:], func(char byte) bool { return char == '-' })
	return words + dashes, dashes > 0
}

// strayKeyLine is the start of a line of a key whose BEGIN line was not read, because
// the log was read from the middle: base64 to the end of the line, with exactly one of
// the lengths that programs use for keys.
func strayKeyLine(text string) (int, bool) {
	text = strings.TrimSuffix(text, "\r")
	run := 0
	for run < len(text) && run <= 76 && isBase64(text[len(text)-1-run]) {
		run++
	}
	if run != 64 && run != 70 && run != 76 {
		return 0, false
	}
	begin := len(text) - run
	// Hashes have no capital letters, and paths have more slashes.
	return begin, isMixed(text[begin:]) && strings.Count(text[begin:], "/") <= 4
}
