package redact

import (
	"slices"
	"strings"
	"unicode"
)

// longestName is how long the name of a value may be.
const longestName = 128

// strength is how sure a name is to be that of a secret.
type strength int

const (
	harmless strength = iota
	// likely: of a secret, if the value looks like one.
	likely
	certain
)

// Ends of names, in small letters without anything between their words.
var (
	certainNames = []string{"password", "passwd", "passphrase", "passcode", "pwd", "secret", "secretkey", "apikey", "accesskey", "privatekey",
		"accountkey", "signingkey", "encryptionkey", "authkey", "authtoken", "accesstoken", "refreshtoken", "bearertoken", "apitoken"}
	likelyNames = []string{"token", "pass", "credential", "credentials", "cookie", "auth", "sig", "signature", "authorization"}
	// What models call tokens, and what counts them.
	harmlessNames = []string{"padtoken", "eostoken", "bostoken", "unktoken", "septoken", "clstoken", "masktoken", "imagetoken", "specialtoken",
		"lasttoken", "nexttoken", "firsttoken", "starttoken", "endtoken", "stoptoken", "newtoken"}
)

// strengthOf judges a name. Numbers at its end do not count, nor what joins them.
func strengthOf(name string) strength {
	for name != "" && !isLetter(name[len(name)-1]) {
		name = name[:len(name)-1]
	}
	if !endsLikeSecret(name) {
		return harmless
	}
	var plain [longestName]byte
	word := plainName(plain[:0], name)
	for _, end := range certainNames {
		if endsWith(word, end) {
			return certain
		}
	}
	for _, end := range likelyNames {
		if endsWith(word, end) {
			return likelyUnlessHarmless(word, name)
		}
	}
	return harmless
}

// endsLikeSecret passes most names over by their last three letters.
func endsLikeSecret(name string) bool {
	length := len(name)
	if length < 3 {
		return false
	}
	switch string([]byte{name[length-3] | 0x20, name[length-2] | 0x20, name[length-1] | 0x20}) {
	case "ord", "swd", "pwd", "ase", "ode", "ret", "key", "ken", "ass", "ial", "als", "kie", "uth", "sig", "ure", "ion":
		return true
	}
	return false
}

func likelyUnlessHarmless(word []byte, name string) strength {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if slices.Contains(harmlessNames, string(plainName(nil, last))) || endsWith(word, "pertoken") {
		return harmless
	}
	return likely
}

// plainName is a name in small letters, without anything between its words.
func plainName(into []byte, name string) []byte {
	for at := range len(name) {
		if isAlphanumeric(name[at]) {
			char := name[at]
			if char <= 'Z' && char >= 'A' {
				char |= 0x20
			}
			into = append(into, char)
		}
	}
	return into
}

func endsWith(word []byte, end string) bool {
	return len(word) >= len(end) && string(word[len(word)-len(end):]) == end
}

func isNameByte(char byte) bool {
	return isAlphanumeric(char) || char == '_' || char == '-' || char == '.'
}

// namedValue is the value behind a name and a = or : at this place, such as
// password=..., "api_key": "...", os.environ['TOKEN'] = '...', Authorization: Basic ....
func namedValue(text string, at int) (secret, bool) {
	// := and => and == are read at their first byte.
	if at > 0 && (text[at-1] == '=' || text[at-1] == ':') {
		return secret{}, false
	}
	end := at
	for end > 0 && at-end < mostBlanks && strings.IndexByte(" \t\"'\\]", text[end-1]) >= 0 {
		end--
	}
	begin := end
	for begin > 0 && end-begin < longestName && isNameByte(text[begin-1]) {
		begin--
	}
	name := text[begin:end]
	strength := strengthOf(name)
	if strength == harmless {
		return secret{}, false
	}
	start := at + span(text[at:min(len(text), at+3)], func(char byte) bool { return char == '=' || char == ':' || char == '>' })
	return valueOf(text, begin, start, name, strength)
}

// flagValue is the value of a flag: --password secret.
func flagValue(text string, at int) (secret, bool) {
	if !strings.HasPrefix(text[at:], "--") || at > 0 && text[at-1] == '-' {
		return secret{}, false
	}
	begin := at + len("--")
	end := begin + span(text[begin:min(len(text), begin+longestName)], isNameByte)
	if end == len(text) || !isBlank(text[end]) {
		return secret{}, false
	}
	strength := strengthOf(text[begin:end])
	if strength == harmless || strings.HasPrefix(strings.TrimLeft(text[end:min(len(text), end+mostBlanks)], " \t"), "-") {
		return secret{}, false
	}
	return valueOf(text, begin, end, text[begin:end], strength)
}

// valueOf is the value that begins at or after a place, if it is secret.
func valueOf(text string, context, at int, name string, strength strength) (secret, bool) {
	blanks := span(text[at:], isBlank)
	start := at + blanks
	if blanks > mostBlanks || start == len(text) {
		return secret{}, false
	}
	found := quoted(text, start)
	if found.goesOn == nowhere {
		// A value that begins so need not be read to its end, which may be far.
		if beginsPlain(name, text[start:], strength) {
			return secret{}, false
		}
		found = unquoted(text, start)
	}
	if strings.HasSuffix(strings.ToLower(name), "authorization") {
		if scheme := schemeOf(text[found.start:]); scheme > 0 {
			strength = certain
			if found.start += scheme; found.end < found.start {
				found = unquoted(text, found.start)
			}
		}
	}
	found.context = context
	value := text[found.start:max(found.start, found.end)]
	return found, !isPlain(value) && !beginsPlain(name, value, strength) && (strength == certain || looksSecret(name, value))
}

// schemes come before what is secret in an Authorization header.
var schemes = []string{"bearer", "basic", "token", "negotiate", "apikey"}

// schemeOf is how long the scheme is that the text begins with, with its blanks.
func schemeOf(text string) int {
	word := span(text, isAlphanumeric)
	gap := span(text[word:], isBlank)
	if gap == 0 || gap > mostBlanks || !slices.Contains(schemes, strings.ToLower(text[:word])) {
		return 0
	}
	return word + gap
}

// quoted is what stands in quotes at this place; goesOn is nowhere if there are none.
func quoted(text string, start int) secret {
	rest := text[start:]
	switch {
	case strings.HasPrefix(rest, `"`):
		length, _ := quotedEnd(rest[1:], '"', false)
		return secret{start: start + 1, end: start + 1 + length, goesOn: atQuote}
	case strings.HasPrefix(rest, `'`):
		length, _ := quotedEnd(rest[1:], '\'', false)
		return secret{start: start + 1, end: start + 1 + length, goesOn: atApostrophe}
	case strings.HasPrefix(rest, `\"`), strings.HasPrefix(rest, `\'`):
		return secret{start: start + 2, end: start + 2 + escapedEnd(rest[2:], rest[:2]), goesOn: atSpace}
	}
	return secret{}
}

// escapedEnd is where a quote within a quote ends: at the next one that is escaped as
// often as itself, or where the outer one does.
func escapedEnd(text, quote string) int {
	for at := range len(text) {
		ends := text[at] == quote[1] || strings.HasPrefix(text[at:], quote)
		if ends && (at == 0 || text[at-1] != '\\') {
			return at
		}
	}
	return len(text)
}

// isValueByte: of a value without quotes.
func isValueByte(char byte) bool {
	return char > ' ' && char != '"' && char != '\'' && char != '&' && char != '`'
}

// unquoted is a value up to the next blank, or to the next name and its value.
func unquoted(text string, start int) secret {
	end := start
	for end < len(text) && isValueByte(text[end]) && !((text[end] == ',' || text[end] == ';') && namesValue(text[end+1:])) {
		end++
	}
	value := strings.TrimRight(text[start:end], `,;)]}>\`)
	return secret{start: start, end: start + len(value), goesOn: atSpace}
}

// namesValue: the text begins with a name and a = or :.
func namesValue(text string) bool {
	length := span(text[:min(len(text), longestName)], isNameByte)
	return length > 0 && length < len(text) && (text[length] == '=' || text[length] == ':')
}

var (
	plainValues = []string{"none", "null", "nil", "true", "false", "undefined", "unset"}
	// Where files are; what lies there is not shown.
	roots = []string{"/etc/", "/var/", "/run/", "/home/", "/root/", "/tmp/", "/mnt/", "/opt/", "/usr/", "/data/", "/workspace/", "/secrets/", "./", "~/"}
)

// isPlain: the value says that there is none.
func isPlain(value string) bool {
	return value == "" || slices.Contains(plainValues, strings.ToLower(value))
}

// beginsPlain: what begins so is not secret, or another rule takes care of it.
func beginsPlain(name, value string, strength strength) bool {
	if value == "" || strings.HasPrefix(value, Mark[:len(Mark)-1]) {
		return true
	}
	if value[0] == '-' && strings.HasPrefix(strings.TrimLeft(value[:min(len(value), longestBlockLine)], "- "), "BEGIN") {
		return true
	}
	if strength == likely && strings.IndexByte("<[({/", value[0]) >= 0 {
		return true
	}
	beginsWith := func(root string) bool { return strings.HasPrefix(value, root) }
	return slices.ContainsFunc(roots, beginsWith) || value[0] == '/' && len(name) >= 3 && strings.EqualFold(name[len(name)-3:], "pwd")
}

// looksSecret: the value has letters and digits and is no measurement.
func looksSecret(name, value string) bool {
	least := 6
	if last := name[len(name)-1] | 0x20; last == 'g' || last == 'e' && len(name) > 6 {
		// sig and signature, which are also of functions.
		least = 20
	}
	if len(value) < least || strings.Contains(value, " ") || !strings.ContainsFunc(value, unicode.IsLetter) {
		return false
	}
	number := span(value, func(char byte) bool { return char >= '0' && char <= '9' || strings.IndexByte(".,+-eE", char) >= 0 })
	if number > 0 && len(value)-number <= 8 && !hasDigit(value[number:]) {
		return false
	}
	return hasDigit(value) || len(value) >= 24
}
