// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"testing"
)

func TestShellWords(t *testing.T) {
	tests := map[string][]string{
		"":                             nil,
		"  ":                           nil,
		"python train.py":              {"python", "train.py"},
		" a\t b\n":                     {"a", "b"},
		`python -c "print(1, 2)"`:      {"python", "-c", "print(1, 2)"},
		`sh -c 'echo "$HOME"; exit 1'`: {"sh", "-c", `echo "$HOME"; exit 1`},
		`--name="a b"c`:                {"--name=a bc"},
		`a '' ""`:                      {"a", "", ""},
		`a\ b \" "\"" "\n" '\'`:        {"a b", `"`, `"`, `\n`, `\`},
		`echo $HOME *`:                 {"echo", "$HOME", "*"},
		`größe="½ l"`:                  {"größe=½ l"},
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := shellWords(text)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("shellWords(%s) = %q, %v; want %q", text, got, err, want)
			}
		})
	}
	for _, text := range []string{`"`, `a 'b`, `a\`, `"a\"`} {
		if got, err := shellWords(text); err == nil {
			t.Errorf("shellWords(%s) = %q, want an error", text, got)
		}
	}
}
