package redact

import (
	"cmp"
	"slices"
	"strings"
)

// shortestValue is the shortest value that is looked for by itself: a shorter one is
// also a piece of other words.
const shortestValue = 6

// SecretValues are the values of an environment whose names are those of secrets, the
// longest first.
func SecretValues(environment []string) []string {
	var values []string
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		strength := strengthOf(name)
		if strength == harmless || len(value) < shortestValue || isPlain(value) || beginsPlain(name, value, strength) || strength == likely && !looksSecret(name, value) {
			continue
		}
		values = append(values, value)
	}
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return slices.Compact(values)
}

// Values takes values out of a text, wherever they are.
func Values(text string, values []string) string {
	for _, value := range values {
		text = strings.ReplaceAll(text, value, Mark)
	}
	return text
}
