// SPDX-License-Identifier: Apache-2.0

package redact

import "strings"

// maxBlanks is how many blanks may be between a name and its value.
const maxBlanks = 64

// mayBegin are the bytes at which a secret can be recognized. All others are skipped.
var mayBegin = func() (begins [256]bool) {
	for first := range tokensBy {
		begins[first] = len(tokensBy[first]) > 0
	}
	for _, char := range []byte("=:-Bb") {
		begins[char] = true
	}
	return begins
}()

// nextSecret is the first secret at or after a position.
func nextSecret(text string, from int) (secret, bool) {
	for at := from; at < len(text); at++ {
		if !mayBegin[text[at]] {
			continue
		}
		if found, ok := secretAt(text, at); ok && found.start >= from {
			return found, true
		}
	}
	return secret{}, false
}

// secretAt is the secret that is recognized by the text at this position.
func secretAt(text string, at int) (secret, bool) {
	switch text[at] {
	case ':':
		if strings.HasPrefix(text[at:], "://") {
			return passwordInURL(text, at)
		}
		return namedValue(text, at)
	case '=':
		return namedValue(text, at)
	case '-':
		return flagValue(text, at)
	case 'B':
		if found, ok := keyBlock(text, at); ok {
			return found, true
		}
		return bearer(text, at)
	case 'b':
		return bearer(text, at)
	}
	return tokenAt(text, at)
}

// maxUserInfoLength is how long user name and password in a URL may be together.
const maxUserInfoLength = 4 << 10

// passwordInURL is the password in scheme://user:password@host. A user name without a
// password is taken for a token if it is long enough.
func passwordInURL(text string, at int) (secret, bool) {
	begin := at + len("://")
	rest := text[begin:min(len(text), begin+maxUserInfoLength)]
	if nextScheme := strings.Index(rest, "://"); nextScheme >= 0 {
		rest = rest[:nextScheme]
	}
	rest = rest[:span(rest, func(char byte) bool { return char > ' ' && char != '"' && char != '\'' && char != '<' && char != '>' })]
	host := strings.LastIndexByte(rest[:pathStart(rest)], '@')
	if host < 0 {
		host = strings.LastIndexByte(rest, '@')
	}
	if host < 0 {
		return secret{}, false
	}
	colon := strings.IndexByte(rest[:host], ':')
	if colon < 0 {
		userName := rest[:host]
		return secret{context: at, start: begin, end: begin + host}, len(userName) >= 20 && hasDigit(userName) && span(userName, isTokenByte) == len(userName) && !strings.Contains(userName, "/")
	}
	if slash := strings.IndexByte(rest[:colon], '/'); slash >= 0 {
		return secret{}, false
	}
	password := rest[colon+1 : host]
	// This is a port, and the @ is in the path.
	port := span(password, func(char byte) bool { return char >= '0' && char <= '9' })
	if password == "" || password == Mark || port < len(password) && strings.IndexByte("/?#", password[port]) >= 0 {
		return secret{}, false
	}
	return secret{context: at, start: begin + colon + 1, end: begin + host}, true
}

// pathStart is where the path of a URL begins.
func pathStart(rest string) int {
	if path := strings.IndexAny(rest, "/?#"); path >= 0 {
		return path
	}
	return len(rest)
}
