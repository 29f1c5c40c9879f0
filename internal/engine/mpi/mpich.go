// SPDX-License-Identifier: Apache-2.0

package mpi

// mpich is MPICH 4.
var mpich = implementation{
	name: MPICH, hostfileLine: hydraHostfileLine, environment: mpichEnvironment,
	// mpiexec.hydra has no variable for it, except for HYDRA_CONFIG_FILE, which names a file
	// with this flag.
	tagFlags:      []string{"-prepend-rank"},
	portVariables: mpichNames, ports: mpichPorts,
	causes:        hydraCauses,
	rankVariables: []string{hydraRank}, libraries: mpiLibraries("libmpich", "libmpl"),
}

// mpichEnvironment configures MPICH's Hydra. The number of slots is in the hostfile:
// Hydra has no variable for it.
func mpichEnvironment(launch Launch) []Variable {
	variables := []Variable{
		{"HYDRA_HOST_FILE", launch.Hostfile},
		{"HYDRA_LAUNCHER", "ssh"},
	}
	switch {
	case launch.Agent != "":
		variables = append(variables, Variable{"HYDRA_LAUNCHER_EXEC", launch.Agent})
	case launch.SSHOptions != "":
		// MPICH 4.2 reads the first; mpi-operator sets both.
		variables = append(variables, Variable{"HYDRA_LAUNCHER_EXTRA_ARGS", launch.SSHOptions}, Variable{"HYDRA_LAUNCH_EXTRA_ARGS", launch.SSHOptions})
	}
	return variables
}

// mpichNames are in the order in which Hydra reads them. Only Hydra reads the last two;
// the ranks read the others, too.
var mpichNames = []string{
	"MPIR_CVAR_CH3_PORT_RANGE", "MPIR_PARAM_CH3_PORT_RANGE", "MPICH_CH3_PORT_RANGE", "MPIR_CVAR_PORTRANGE", "MPIR_CVAR_PORT_RANGE",
	"MPIR_PARAM_PORTRANGE", "MPIR_PARAM_PORT_RANGE", "MPICH_PORTRANGE", "MPICH_PORT_RANGE", "MPIEXEC_PORTRANGE", "MPIEXEC_PORT_RANGE",
}

func mpichPorts(read settings) Ports {
	return Ports{Launcher: read.ranges(mpichNames...), Ranks: read.ranges(mpichNames[:len(mpichNames)-2]...)}
}
