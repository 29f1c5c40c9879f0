// SPDX-License-Identifier: Apache-2.0

package mpi

import "strconv"

// intelMPI is Intel MPI 2021. Its error messages are among hydraCauses.
var intelMPI = implementation{
	name: IntelMPI, hostfileLine: hydraHostfileLine, environment: intelEnvironment,
	// mpiexec.hydra has no variable for it.
	tagFlags:      []string{"-prepend-rank"},
	portVariables: []string{intelName}, ports: intelPorts,
	rankVariables: []string{hydraRank}, libraries: mpiLibraries("libimpi"),
}

// intelEnvironment configures Intel MPI's Hydra, which differs from MPICH's.
func intelEnvironment(launch Launch) []Variable {
	variables := []Variable{
		{"I_MPI_HYDRA_BOOTSTRAP", "ssh"},
		{"I_MPI_HYDRA_HOST_FILE", launch.Hostfile},
		{"I_MPI_PERHOST", strconv.Itoa(launch.Slots)},
	}
	switch {
	case launch.Agent != "":
		variables = append(variables, Variable{"I_MPI_HYDRA_BOOTSTRAP_EXEC", launch.Agent})
	case launch.SSHOptions != "":
		variables = append(variables, Variable{"I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", launch.SSHOptions})
	}
	return variables
}

// intelName sets all ports of Intel MPI.
const intelName = "I_MPI_PORT_RANGE"

func intelPorts(read settings) Ports {
	ranges := read.ranges(intelName)
	return Ports{Launcher: ranges, Ranks: ranges}
}
