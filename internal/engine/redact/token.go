package redact

import "strings"

// longestSample is how much of a token is looked at to know it.
const longestSample = 64

// token is a secret that says by its first letters what it is.
type token struct {
	prefix string
	// least is how many bytes have to follow.
	least int
	of    func(byte) bool
	// word: letters or digits before it make it something else.
	word bool
	// mixed: it has small letters, capitals and digits.
	mixed bool
}

var tokens = []token{
	{prefix: "eyJ", least: 16, of: isTokenByte},                          // JSON in base64: JWTs, tokens of service accounts, logins of registries
	{prefix: "LS0tLS1CRUdJTi", least: 48, of: isTokenByte},               // -----BEGIN in base64, as Secrets have it
	{prefix: "AKIA", least: 16, of: isAlphanumeric, word: true},          // AWS
	{prefix: "ASIA", least: 16, of: isAlphanumeric, word: true},          //
	{prefix: "AIza", least: 30, of: isTokenByte},                         // Google
	{prefix: "ya29.", least: 20, of: isTokenByte},                        //
	{prefix: "GOCSPX-", least: 20, of: isTokenByte},                      //
	{prefix: "ghp_", least: 20, of: isAlphanumeric},                      // GitHub
	{prefix: "gho_", least: 20, of: isAlphanumeric},                      //
	{prefix: "ghu_", least: 20, of: isAlphanumeric},                      //
	{prefix: "ghs_", least: 20, of: isTokenByte},                         //
	{prefix: "ghr_", least: 20, of: isAlphanumeric},                      //
	{prefix: "github_pat_", least: 20, of: isTokenByte},                  //
	{prefix: "glpat-", least: 20, of: isTokenByte},                       // GitLab
	{prefix: "hf_", least: 30, of: isAlphanumeric, word: true},           // Hugging Face
	{prefix: "sk-", least: 20, of: isTokenByte, word: true, mixed: true}, // OpenAI and others
	{prefix: "nvapi-", least: 40, of: isTokenByte},                       // NVIDIA
	{prefix: "xoxa-", least: 10, of: isTokenByte},                        // Slack
	{prefix: "xoxb-", least: 10, of: isTokenByte},                        //
	{prefix: "xoxe-", least: 10, of: isTokenByte},                        //
	{prefix: "xoxe.", least: 10, of: isTokenByte},                        //
	{prefix: "xoxo-", least: 10, of: isTokenByte},                        //
	{prefix: "xoxp-", least: 10, of: isTokenByte},                        //
	{prefix: "xoxr-", least: 10, of: isTokenByte},                        //
	{prefix: "xoxs-", least: 10, of: isTokenByte},                        //
	{prefix: "xapp-", least: 20, of: isTokenByte},                        //
	{prefix: "npm_", least: 36, of: isAlphanumeric},                      // npm
	{prefix: "pypi-", least: 40, of: isTokenByte},                        // PyPI
	{prefix: "AGE-SECRET-KEY-1", least: 40, of: isAlphanumeric},          // age
}

// tokensBy are the tokens by their first byte.
var tokensBy = func() (by [256][]token) {
	for _, known := range tokens {
		by[known.prefix[0]] = append(by[known.prefix[0]], known)
	}
	return by
}()

// tokenAt is the token that begins at this place.
func tokenAt(text string, at int) (secret, bool) {
	for i := range tokensBy[text[at]] {
		known := &tokensBy[text[at]][i]
		if at+1 == len(text) || text[at+1] != known.prefix[1] || !strings.HasPrefix(text[at:], known.prefix) || known.word && !beginsWord(text, at) {
			continue
		}
		begin := at + len(known.prefix)
		// Its beginning tells. Reading on without need would take for ever in a line
		// of nothing but beginnings.
		sample := text[begin:min(len(text), begin+longestSample)]
		sample = sample[:span(sample, known.of)]
		if len(sample) < known.least || known.mixed && !isMixed(sample) {
			continue
		}
		length := span(text[begin:], known.of)
		end := begin + length
		if known.prefix == "AKIA" || known.prefix == "ASIA" {
			if length != 16 {
				continue
			}
			end = secretBeside(text, end)
		}
		return secret{context: at, start: at, end: end, goesOn: atWordEnd}, true
	}
	return secret{}, false
}

// secretBeside is where the secret key ends that is written right after AWS's access
// key: 40 bytes of base64, which alone could be anything.
func secretBeside(text string, end int) int {
	between := span(text[end:], func(char byte) bool { return strings.IndexByte(" \t:,;/|\"'", char) >= 0 })
	begin := end + between
	length := span(text[begin:min(len(text), begin+41)], isBase64)
	if between == 0 || between > 4 || length != 40 || !isMixed(text[begin:begin+length]) {
		return end
	}
	return begin + length
}

// beginsWord: nothing before this place belongs to the same word. The letter of an
// escape, as in \nsk-..., does not, nor does that of a colour.
func beginsWord(text string, at int) bool {
	if at == 0 || !isAlphanumeric(text[at-1]) && text[at-1] != '_' && text[at-1] != '-' {
		return true
	}
	if at > 1 && text[at-2] == '\\' {
		return true
	}
	colour := strings.LastIndexByte(text[max(0, at-16):at], '\x1b')
	return text[at-1] == 'm' && colour >= 0 && strings.Trim(text[max(0, at-16)+colour+1:at-1], "[0123456789;") == ""
}

// bearer is the token behind the word.
func bearer(text string, at int) (secret, bool) {
	const word = "bearer"
	if len(text)-at <= len(word) || !strings.EqualFold(text[at:at+len(word)], word) {
		return secret{}, false
	}
	begin := at + len(word)
	gap := span(text[begin:], isBlank)
	start := begin + gap
	length := span(text[start:], isTokenByte)
	if gap == 0 || gap > mostBlanks || length < 16 || !hasDigit(text[start:start+length]) {
		return secret{}, false
	}
	return secret{context: at, start: start, end: start + length, goesOn: atWordEnd}, true
}

func isLetter(char byte) bool { return char >= 'a' && char <= 'z' || char >= 'A' && char <= 'Z' }

func isAlphanumeric(char byte) bool { return isLetter(char) || char >= '0' && char <= '9' }

func isBase64(char byte) bool {
	return isAlphanumeric(char) || char == '+' || char == '/' || char == '='
}

// isTokenByte: of base64 in both alphabets, in parts with dots between.
func isTokenByte(char byte) bool {
	return isBase64(char) || char == '-' || char == '_' || char == '.' || char == '~' || char == '%'
}

func isBlank(char byte) bool { return char == ' ' || char == '\t' }

func hasDigit(text string) bool { return strings.ContainsAny(text, "0123456789") }

// isMixed: small letters, capitals and digits are in it.
func isMixed(text string) bool {
	var small, capital, digit bool
	for at := range len(text) {
		switch char := text[at]; {
		case char >= 'a' && char <= 'z':
			small = true
		case char >= 'A' && char <= 'Z':
			capital = true
		case char >= '0' && char <= '9':
			digit = true
		}
	}
	return small && capital && digit
}
