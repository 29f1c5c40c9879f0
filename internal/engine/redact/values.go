// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"cmp"
	"slices"
	"strings"
)

// minValueLength is the length of the shortest value that is redacted without its name.
// Shorter values also occur in ordinary words.
const minValueLength = 6

// SecretValues are the values of an environment's variables that have the name of a
// secret, the longest first.
func SecretValues(environment []string) []string {
	var values []string
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		strength := strengthOf(name)
		if strength == harmless || len(value) < minValueLength || isEmptyValue(value) || hasHarmlessPrefix(name, value, strength) || strength == likely && !looksSecret(name, value) {
			continue
		}
		values = append(values, value)
	}
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return slices.Compact(values)
}

// Values removes the values from a text.
func Values(text string, values []string) string {
	for _, value := range values {
		text = strings.ReplaceAll(text, value, Mark)
	}
	return text
}
