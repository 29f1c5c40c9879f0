package redact

import "strings"

// mostBlanks is how many blanks may be between a name and its value.
const mostBlanks = 64

// begins are the bytes at which a secret may be known. All others are passed over.
var begins = func() (begins [256]bool) {
	for first := range tokensBy {
		begins[first] = len(tokensBy[first]) > 0
	}
	for _, char := range []byte("=:-Bb") {
		begins[char] = true
	}
	return begins
}()

// next is the first secret at or after a place.
func next(text string, from int) (secret, bool) {
	for at := from; at < len(text); at++ {
		if !begins[text[at]] {
			continue
		}
		if found, any := secretAt(text, at); any && found.start >= from {
			return found, true
		}
	}
	return secret{}, false
}

// secretAt is the secret that is known by what is at this place.
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
		if found, any := keyBlock(text, at); any {
			return found, true
		}
		return bearer(text, at)
	case 'b':
		return bearer(text, at)
	}
	return tokenAt(text, at)
}

// longestUserInfo is how long name and password in an address may be in all.
const longestUserInfo = 4 << 10

// passwordInURL is the password in scheme://user:password@host. A lone name of that
// place is taken for a token if it is as long as one.
func passwordInURL(text string, at int) (secret, bool) {
	begin := at + len("://")
	rest := text[begin:min(len(text), begin+longestUserInfo)]
	if another := strings.Index(rest, "://"); another >= 0 {
		rest = rest[:another]
	}
	rest = rest[:span(rest, func(char byte) bool { return char > ' ' && char != '"' && char != '\'' && char != '<' && char != '>' })]
	host := strings.LastIndexByte(rest[:authority(rest)], '@')
	if host < 0 {
		host = strings.LastIndexByte(rest, '@')
	}
	if host < 0 {
		return secret{}, false
	}
	colon := strings.IndexByte(rest[:host], ':')
	if colon < 0 {
		lone := rest[:host]
		return secret{context: at, start: begin, end: begin + host}, len(lone) >= 20 && hasDigit(lone) && span(lone, isTokenByte) == len(lone) && !strings.Contains(lone, "/")
	}
	if slash := strings.IndexByte(rest[:colon], '/'); slash >= 0 {
		return secret{}, false
	}
	password := rest[colon+1 : host]
	// A port, and an @ somewhere in the path.
	port := span(password, func(char byte) bool { return char >= '0' && char <= '9' })
	if password == "" || password == Mark || port < len(password) && strings.IndexByte("/?#", password[port]) >= 0 {
		return secret{}, false
	}
	return secret{context: at, start: begin + colon + 1, end: begin + host}, true
}

// authority is where the path of an address begins.
func authority(rest string) int {
	if path := strings.IndexAny(rest, "/?#"); path >= 0 {
		return path
	}
	return len(rest)
}
