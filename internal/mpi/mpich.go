package mpi

// mpichEnvironment is for MPICH's Hydra. The number of slots is in the hostfile:
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

// mpichTagFlags: mpiexec.hydra has no variable for it, other than HYDRA_CONFIG_FILE
// for a file with this flag in it.
func mpichTagFlags() []string { return []string{"-prepend-rank"} }
