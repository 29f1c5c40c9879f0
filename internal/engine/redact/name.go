// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"slices"
	"strings"
	"unicode"
)

// maxNameLength is how long the name of a value may be.
const maxNameLength = 128

// strength is how certain it is that a name belongs to a secret.
type strength int

const (
	harmless strength = iota
	// likely: it does if the value looks like a secret.
	likely
	certain
)

// Suffixes of normalized names.
var (
	certainNames = []string{"password", "passwd", "passphrase", "passcode", "pwd", "secret", "secretkey", "apikey", "accesskey", "privatekey",
		"accountkey", "signingkey", "encryptionkey", "authkey", "authtoken", "accesstoken", "refreshtoken", "bearertoken", "apitoken"}
	likelyNames = []string{"token", "pass", "credential", "credentials", "cookie", "auth", "sig", "signature", "authorization"}
	// Tokens of language models.
	harmlessNames = []string{"padtoken", "eostoken", "bostoken", "unktoken", "septoken", "clstoken", "masktoken", "imagetoken", "specialtoken",
		"lasttoken", "nexttoken", "firsttoken", "starttoken", "endtoken", "stoptoken", "newtoken"}
)

// strengthOf is the strength of a name. It ignores digits and separators at the end.
func strengthOf(name string) strength {
	for name != "" && !isLetter(name[len(name)-1]) {
		name = name[:len(name)-1]
	}
	if !endsLikeSecret(name) {
		return harmless
	}
	var buffer [maxNameLength]byte
	normalized := normalizedName(buffer[:0], name)
	for _, end := range certainNames {
		if endsWith(normalized, end) {
			return certain
		}
	}
	for _, end := range likelyNames {
		if endsWith(normalized, end) {
			return likelyUnlessHarmless(normalized, name)
		}
	}
	return harmless
}

// endsLikeSecret is a fast check of the last three letters, which most names do not
// pass.
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

func likelyUnlessHarmless(normalized []byte, name string) strength {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if slices.Contains(harmlessNames, string(normalizedName(nil, last))) || endsWith(normalized, "pertoken") {
		return harmless
	}
	return likely
}

// normalizedName is a name in lower case without separators.
func normalizedName(into []byte, name string) []byte {
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

func endsWith(name []byte, end string) bool {
	return len(name) >= len(end) && string(name[len(name)-len(end):]) == end
}

func isNameByte(char byte) bool {
	return isAlphanumeric(char) || char == '_' || char == '-' || char == '.'
}

// namedValue is the value after a name and the = or : at this position, such as
// password=..., "api_key": "...", os.environ['TOKEN'] = '...', Authorization: Basic ....
func namedValue(text string, at int) (secret, bool) {
	// The operators :=, => and == are handled at their first byte.
	if at > 0 && (text[at-1] == '=' || text[at-1] == ':') {
		return secret{}, false
	}
	end := at
	for end > 0 && at-end < maxBlanks && strings.IndexByte(" \t\"'\\]", text[end-1]) >= 0 {
		end--
	}
	begin := end
	for begin > 0 && end-begin < maxNameLength && isNameByte(text[begin-1]) {
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
	end := begin + span(text[begin:min(len(text), begin+maxNameLength)], isNameByte)
	if end == len(text) || !isBlank(text[end]) {
		return secret{}, false
	}
	strength := strengthOf(text[begin:end])
	if strength == harmless || strings.HasPrefix(strings.TrimLeft(text[end:min(len(text), end+maxBlanks)], " \t"), "-") {
		return secret{}, false
	}
	return valueOf(text, begin, end, text[begin:end], strength)
}

// valueOf is the value that begins at or after a position, if it is secret.
func valueOf(text string, context, at int, name string, strength strength) (secret, bool) {
	blanks := span(text[at:], isBlank)
	start := at + blanks
	if blanks > maxBlanks || start == len(text) {
		return secret{}, false
	}
	found := quoted(text, start)
	if found.ending == notOpen {
		// Check the prefix first, because reading a long value to its end is slow.
		if hasHarmlessPrefix(name, text[start:], strength) {
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
	return found, !isEmptyValue(value) && !hasHarmlessPrefix(name, value, strength) && (strength == certain || looksSecret(name, value))
}

// schemes precede the secret in an Authorization header.
var schemes = []string{"bearer", "basic", "token", "negotiate", "apikey"}

// schemeOf is the length of the scheme at the start of the text, with the blanks after
// it; 0 if there is none.
func schemeOf(text string) int {
	word := span(text, isAlphanumeric)
	gap := span(text[word:], isBlank)
	if gap == 0 || gap > maxBlanks || !slices.Contains(schemes, strings.ToLower(text[:word])) {
		return 0
	}
	return word + gap
}

// quoted is the quoted value at this position; its ending is notOpen if there are no
// quotes.
func quoted(text string, start int) secret {
	rest := text[start:]
	switch {
	case strings.HasPrefix(rest, `"`):
		length, _ := quotedEnd(rest[1:], '"', false)
		return secret{start: start + 1, end: start + 1 + length, ending: atQuote}
	case strings.HasPrefix(rest, `'`):
		length, _ := quotedEnd(rest[1:], '\'', false)
		return secret{start: start + 1, end: start + 1 + length, ending: atApostrophe}
	case strings.HasPrefix(rest, `\"`), strings.HasPrefix(rest, `\'`):
		return secret{start: start + 2, end: start + 2 + escapedEnd(rest[2:], rest[:2]), ending: atSpace}
	}
	return secret{}
}

// escapedEnd is where an escaped quote within a quote ends: at the next escaped quote,
// or at the end of the outer quote.
func escapedEnd(text, quote string) int {
	for at := range len(text) {
		ends := text[at] == quote[1] || strings.HasPrefix(text[at:], quote)
		if ends && (at == 0 || text[at-1] != '\\') {
			return at
		}
	}
	return len(text)
}

// isValueByte reports whether a byte may be in a value without quotes.
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
	return secret{start: start, end: start + len(value), ending: atSpace}
}

// namesValue reports whether the text begins with a name and a = or :.
func namesValue(text string) bool {
	length := span(text[:min(len(text), maxNameLength)], isNameByte)
	return length > 0 && length < len(text) && (text[length] == '=' || text[length] == ':')
}

var (
	emptyValues = []string{"none", "null", "nil", "true", "false", "undefined", "unset"}
	// Paths of files with secrets are not secret themselves.
	pathPrefixes = []string{"/etc/", "/var/", "/run/", "/home/", "/root/", "/tmp/", "/mnt/", "/opt/", "/usr/", "/data/", "/workspace/", "/secrets/", "./", "~/"}
)

// isEmptyValue reports whether the value means that there is none.
func isEmptyValue(value string) bool {
	return value == "" || slices.Contains(emptyValues, strings.ToLower(value))
}

// hasHarmlessPrefix reports whether the value begins like something that is not secret,
// or that another rule handles.
func hasHarmlessPrefix(name, value string, strength strength) bool {
	if value == "" || strings.HasPrefix(value, Mark[:len(Mark)-1]) {
		return true
	}
	if value[0] == '-' && strings.HasPrefix(strings.TrimLeft(value[:min(len(value), maxBlockLineLength)], "- "), "BEGIN") {
		return true
	}
	if strength == likely && strings.IndexByte("<[({/", value[0]) >= 0 {
		return true
	}
	beginsWith := func(root string) bool { return strings.HasPrefix(value, root) }
	return slices.ContainsFunc(pathPrefixes, beginsWith) || value[0] == '/' && len(name) >= 3 && strings.EqualFold(name[len(name)-3:], "pwd")
}

// looksSecret reports whether the value has letters and digits and is not a number with
// a unit.
func looksSecret(name, value string) bool {
	minLength := 6
	if last := name[len(name)-1] | 0x20; last == 'g' || last == 'e' && len(name) > 6 {
		// sig and signature may also refer to functions.
		minLength = 20
	}
	if len(value) < minLength || strings.Contains(value, " ") || !strings.ContainsFunc(value, unicode.IsLetter) {
		return false
	}
	number := span(value, func(char byte) bool { return char >= '0' && char <= '9' || strings.IndexByte(".,+-eE", char) >= 0 })
	if number > 0 && len(value)-number <= 8 && !hasDigit(value[number:]) {
		return false
	}
	return hasDigit(value) || len(value) >= 24
}
