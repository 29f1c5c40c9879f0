package cli

import (
	"fmt"
	"strings"
)

// shellWords splits a command into words as a shell does: at blanks, except in quotes
// or after a backslash. It expands neither variables nor patterns.
func shellWords(text string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	begun, escaped := false, false
	for _, letter := range text {
		switch {
		case escaped:
			// In double quotes a backslash is literal unless it escapes one of these.
			if quote == '"' && !strings.ContainsRune("\"\\$`", letter) {
				word.WriteRune('\\')
			}
			word.WriteRune(letter)
			escaped = false
		case letter == '\\' && quote != '\'':
			begun, escaped = true, true
		case letter == quote:
			quote = 0
		case quote == 0 && (letter == '\'' || letter == '"'):
			begun, quote = true, letter
		case quote == 0 && strings.ContainsRune(" \t\r\n", letter):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			begun = true
			word.WriteRune(letter)
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("unclosed quote or trailing backslash")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
