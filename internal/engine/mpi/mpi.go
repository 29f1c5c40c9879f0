// SPDX-License-Identifier: Apache-2.0

// Package mpi has the differences between implementations of MPI: the format of the
// hostfile, the environment for mpirun, how output lines are tagged with their rank,
// which lines are noise, how mpirun's error output is parsed, which variable has the rank
// of a process, and which libraries are MPI's. It starts no process and reads no file.
package mpi

// Implementation is an implementation of MPI, by the names the job model uses.
type Implementation string

const (
	OpenMPI  Implementation = "OpenMPI"
	IntelMPI Implementation = "IntelMPI"
	MPICH    Implementation = "MPICH"
)

// Launch is the configuration of mpirun.
type Launch struct {
	// Hostfile is the path of the hostfile.
	Hostfile string
	// Slots is the default number of ranks on a host without slots in the hostfile.
	Slots int
	// Agent is the path of the program that starts a command on a host, called as
	// "agent HOST COMMAND…". If it is empty, mpirun uses the image's ssh.
	Agent string
	// SSHOptions are options of the image's ssh, such as "-o ConnectionAttempts=10". They
	// are not used with an Agent.
	SSHOptions string
	// TagOutput adds the rank to every line of output. Only Open MPI 4 has a variable for
	// it; see TagFlags for the others.
	TagOutput bool
}

// Variable is one environment variable.
type Variable struct{ Name, Value string }

// implementation is all that this package knows about an implementation of MPI. Each has
// a file of its own.
type implementation struct {
	name Implementation
	// hostfileLine is the format of a line with a host's name and number of slots.
	hostfileLine string
	// environment configures mpirun.
	environment func(Launch) []Variable
	// tagFlags are the flags of mpirun that add the rank to every line of output.
	tagFlags []string
	// portVariables set the ports; ports reads them.
	portVariables []string
	ports         func(settings) Ports
	// causes match its error messages.
	causes func() []cause
	// rankVariables have the rank of a process in MPI_COMM_WORLD; the first that is set
	// counts.
	rankVariables []string
	// libraries are the beginnings of the names of its shared libraries.
	libraries []string
}

// implementations are all of them. The order matters only where two match the same error
// message at the same position: the first one counts.
var implementations = []implementation{openMPI, intelMPI, mpich}

// find returns an implementation, or one that sets nothing.
func find(name Implementation) implementation {
	for _, each := range implementations {
		if each.name == name {
			return each
		}
	}
	return implementation{hostfileLine: hydraHostfileLine}
}

// TagFlags are the flags of mpirun that add the rank to every line of output.
func TagFlags(name Implementation) []string { return find(name).tagFlags }
