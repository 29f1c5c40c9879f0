// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"cmp"
	"slices"
)

// Environment returns the launcher's variables for all implementations, sorted by name.
// The image's implementation need not be known, because each ignores the variables of
// the others.
func Environment(launch Launch) []Variable {
	var variables []Variable
	for _, each := range implementations {
		variables = append(variables, each.environment(launch)...)
	}
	slices.SortFunc(variables, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return variables
}
