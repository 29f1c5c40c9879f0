// SPDX-License-Identifier: Apache-2.0

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
	inWord, escaped := false, false
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
			inWord, escaped = true, true
		case letter == quote:
			quote = 0
		case quote == 0 && (letter == '\'' || letter == '"'):
			inWord, quote = true, letter
		case quote == 0 && strings.ContainsRune(" \t\r\n", letter):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			inWord = true
			word.WriteRune(letter)
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("unclosed quote or trailing backslash")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
