package redact

import "strings"

const (
	// longestBlockLine is how long a BEGIN or END line may be.
	longestBlockLine = 128
	// A block whose END does not come is given up after so many lines or bytes, ...
	mostBlockLines = 1024
	mostBlockBytes = 128 << 10
	// ... or sooner, after so many lines in a row that have nothing of a key.
	mostPlainLines = 32
	// keyRun is how many bytes of base64 a line of a key has; the last may have fewer.
	keyRun = 40
)

// blockLimit is how far a key goes that has no end yet.
type blockLimit struct{ lines, plain, bytes int }

// line counts one more, and leaves the block if that is one too many.
func (limit *blockLimit) line(text string, inside *ending) {
	limit.lines++
	limit.bytes += len(text)
	limit.plain++
	if longestRun(text) >= keyRun {
		limit.plain = 0
	}
	if limit.lines > mostBlockLines || limit.bytes > mostBlockBytes || limit.plain > mostPlainLines {
		*inside = nowhere
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

// keyBlock is the key whose BEGIN is at this place: -----BEGIN RSA PRIVATE KEY-----
// and all of its relatives, on one line or on many.
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
	return secret{context: at, start: start, end: start + length, goesOn: atBlockEnd}, length > 0 || start == len(text)
}

// blockEnd is where the END of a key begins.
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

// keyLine is how long the words of a BEGIN or END line are, with the dashes after
// them, if they are those of a private key.
func keyLine(text string) (int, bool) {
	text = text[:min(len(text), longestBlockLine)]
	words := span(text, func(char byte) bool { return char >= 'A' && char <= 'Z' || char >= '0' && char <= '9' || char == ' ' })
	if !strings.Contains(text[:words], "PRIVATE KEY") {
		return 0, false
	}
	dashes := span(text[words:], func(char byte) bool { return char == '-' })
	return words + dashes, dashes > 0
}

// strayKeyLine is where a line of a key begins whose BEGIN was not read, because the
// log was read from its middle: base64 to the end of the line, exactly as long as the
// programs that write keys make it.
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
	// Hashes have no capitals, and paths have more slashes.
	return begin, isMixed(text[begin:]) && strings.Count(text[begin:], "/") <= 4
}
