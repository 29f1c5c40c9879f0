package mpi

import (
	"cmp"
	"slices"
)

// Environment is what the launcher needs, for all implementations together and
// sorted by name: nobody has to know which one the image has, because each ignores
// the others' names.
func Environment(launch Launch) []Variable {
	variables := slices.Concat(openMPIEnvironment(launch), intelEnvironment(launch), mpichEnvironment(launch))
	slices.SortFunc(variables, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return variables
}
