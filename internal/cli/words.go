package cli

import (
	"fmt"
	"strings"
)

// shellWords takes a command apart as a shell does: blanks separate words, except
// in quotes or behind a backslash. Nothing is replaced, no variable and no pattern.
func shellWords(text string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	begun, escaped := false, false
	for _, letter := range text {
		switch {
		case escaped:
			// In double quotes a backslash stands for itself, unless it protects something.
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
		return nil, fmt.Errorf("a quote or a backslash at its end is left open")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
