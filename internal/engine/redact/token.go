// SPDX-License-Identifier: Apache-2.0

package redact

import "strings"

// sampleLength is how many bytes of a token are read to recognize it.
const sampleLength = 64

// token is a kind of secret with a known prefix.
type token struct {
	prefix string
	// minLength is how many bytes must follow the prefix.
	minLength int
	isByte    func(byte) bool
	// wholeWord: no letter or digit may precede it.
	wholeWord bool
	// mixed: it has lower case letters, upper case letters and digits.
	mixed bool
}

var tokens = []token{
	{prefix: "eyJ", minLength: 16, isByte: isTokenByte},                               // JSON in base64: JWTs, tokens of service accounts, logins of registries
	{prefix: "LS0tLS1CRUdJTi", minLength: 48, isByte: isTokenByte},                    // -----BEGIN in base64, as Secrets have it
	{prefix: "AKIA", minLength: 16, isByte: isAlphanumeric, wholeWord: true},          // AWS
	{prefix: "ASIA", minLength: 16, isByte: isAlphanumeric, wholeWord: true},          //
	{prefix: "AIza", minLength: 30, isByte: isTokenByte},                              // Google
	{prefix: "ya29.", minLength: 20, isByte: isTokenByte},                             //
	{prefix: "GOCSPX-", minLength: 20, isByte: isTokenByte},                           //
	{prefix: "ghp_", minLength: 20, isByte: isAlphanumeric},                           // GitHub
	{prefix: "gho_", minLength: 20, isByte: isAlphanumeric},                           //
	{prefix: "ghu_", minLength: 20, isByte: isAlphanumeric},                           //
	{prefix: "ghs_", minLength: 20, isByte: isTokenByte},                              //
	{prefix: "ghr_", minLength: 20, isByte: isAlphanumeric},                           //
	{prefix: "github_pat_", minLength: 20, isByte: isTokenByte},                       //
	{prefix: "glpat-", minLength: 20, isByte: isTokenByte},                            // GitLab
	{prefix: "hf_", minLength: 30, isByte: isAlphanumeric, wholeWord: true},           // Hugging Face
	{prefix: "sk-", minLength: 20, isByte: isTokenByte, wholeWord: true, mixed: true}, // OpenAI and others
	{prefix: "nvapi-", minLength: 40, isByte: isTokenByte},                            // NVIDIA
	{prefix: "xoxa-", minLength: 10, isByte: isTokenByte},                             // Slack
	{prefix: "xoxb-", minLength: 10, isByte: isTokenByte},                             //
	{prefix: "xoxe-", minLength: 10, isByte: isTokenByte},                             //
	{prefix: "xoxe.", minLength: 10, isByte: isTokenByte},                             //
	{prefix: "xoxo-", minLength: 10, isByte: isTokenByte},                             //
	{prefix: "xoxp-", minLength: 10, isByte: isTokenByte},                             //
	{prefix: "xoxr-", minLength: 10, isByte: isTokenByte},                             //
	{prefix: "xoxs-", minLength: 10, isByte: isTokenByte},                             //
	{prefix: "xapp-", minLength: 20, isByte: isTokenByte},                             //
	{prefix: "npm_", minLength: 36, isByte: isAlphanumeric},                           // npm
	{prefix: "pypi-", minLength: 40, isByte: isTokenByte},                             // PyPI
	{prefix: "AGE-SECRET-KEY-1", minLength: 40, isByte: isAlphanumeric},               // age
}

// tokensBy are the tokens by their first byte.
var tokensBy = func() (by [256][]token) {
	for _, known := range tokens {
		by[known.prefix[0]] = append(by[known.prefix[0]], known)
	}
	return by
}()

// tokenAt is the token that begins at this position.
func tokenAt(text string, at int) (secret, bool) {
	for i := range tokensBy[text[at]] {
		t := &tokensBy[text[at]][i]
		if at+1 == len(text) || text[at+1] != t.prefix[1] || !strings.HasPrefix(text[at:], t.prefix) || t.wholeWord && !isAtWordStart(text, at) {
			continue
		}
		begin := at + len(t.prefix)
		// Check a sample first: reading every candidate to its end would take quadratic
		// time in a line of many prefixes.
		sample := text[begin:min(len(text), begin+sampleLength)]
		sample = sample[:span(sample, t.isByte)]
		if len(sample) < t.minLength || t.mixed && !isMixed(sample) {
			continue
		}
		length := span(text[begin:], t.isByte)
		end := begin + length
		if t.prefix == "AKIA" || t.prefix == "ASIA" {
			if length != 16 {
				continue
			}
			end = adjacentSecretKey(text, end)
		}
		return secret{context: at, start: at, end: end, ending: atWordEnd}, true
	}
	return secret{}, false
}

// adjacentSecretKey is the end of an AWS secret key that follows its access key: 40
// bytes of base64, which are not recognizable alone.
func adjacentSecretKey(text string, end int) int {
	gap := span(text[end:], func(char byte) bool { return strings.IndexByte(" \t:,;/|\"'", char) >= 0 })
	begin := end + gap
	length := span(text[begin:min(len(text), begin+41)], isBase64)
	if gap == 0 || gap > 4 || length != 40 || !isMixed(text[begin:begin+length]) {
		return end
	}
	return begin + length
}

// isAtWordStart reports whether a word begins at this position. The letter of an escape,
// as in \nsk-..., is not part of the word, and neither is that of a colour sequence.
func isAtWordStart(text string, at int) bool {
	if at == 0 || !isAlphanumeric(text[at-1]) && text[at-1] != '_' && text[at-1] != '-' {
		return true
	}
	if at > 1 && text[at-2] == '\\' {
		return true
	}
	colour := strings.LastIndexByte(text[max(0, at-16):at], '\x1b')
	return text[at-1] == 'm' && colour >= 0 && strings.Trim(text[max(0, at-16)+colour+1:at-1], "[0123456789;") == ""
}

// bearer is the token after the word bearer.
func bearer(text string, at int) (secret, bool) {
	const word = "bearer"
	if len(text)-at <= len(word) || !strings.EqualFold(text[at:at+len(word)], word) {
		return secret{}, false
	}
	begin := at + len(word)
	gap := span(text[begin:], isBlank)
	start := begin + gap
	length := span(text[start:], isTokenByte)
	if gap == 0 || gap > maxBlanks || length < 16 || !hasDigit(text[start:start+length]) {
		return secret{}, false
	}
	return secret{context: at, start: start, end: start + length, ending: atWordEnd}, true
}

func isLetter(char byte) bool { return char >= 'a' && char <= 'z' || char >= 'A' && char <= 'Z' }

func isAlphanumeric(char byte) bool { return isLetter(char) || char >= '0' && char <= '9' }

func isBase64(char byte) bool {
	return isAlphanumeric(char) || char == '+' || char == '/' || char == '='
}

// isTokenByte reports whether a byte may be in a token: base64 of both alphabets, with
// dots between parts.
func isTokenByte(char byte) bool {
	return isBase64(char) || char == '-' || char == '_' || char == '.' || char == '~' || char == '%'
}

func isBlank(char byte) bool { return char == ' ' || char == '\t' }

func hasDigit(text string) bool { return strings.ContainsAny(text, "0123456789") }

// isMixed reports whether a text has lower case letters, upper case letters and digits.
func isMixed(text string) bool {
	var lower, upper, digit bool
	for at := range len(text) {
		switch char := text[at]; {
		case char >= 'a' && char <= 'z':
			lower = true
		case char >= 'A' && char <= 'Z':
			upper = true
		case char >= '0' && char <= '9':
			digit = true
		}
	}
	return lower && upper && digit
}
