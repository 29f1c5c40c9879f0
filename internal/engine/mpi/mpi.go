// Package mpi is what differs between implementations of MPI: the form of the
// hostfile, the environment that tells mpirun how to reach the workers, how lines
// are tagged with their rank, which lines are noise, and how mpirun's final output is
// read. It starts nothing and reads no file.
package mpi

// Implementation is an implementation of MPI, by the names the job model uses.
type Implementation string

const (
	OpenMPI  Implementation = "OpenMPI"
	IntelMPI Implementation = "IntelMPI"
	MPICH    Implementation = "MPICH"
)

// Launch is what mpirun must be told.
type Launch struct {
	// Hostfile is the path of the hostfile.
	Hostfile string
	// Slots is the number of ranks on a host whose line in the hostfile has none.
	Slots int
	// Agent is the path of the program that starts a command on a host, called as
	// "agent HOST COMMAND…". Empty leaves the image's own ssh in charge.
	Agent string
	// SSHOptions are words for the image's own ssh, such as
	// "-o ConnectionAttempts=10". They are unused where there is an Agent: it is
	// called by its path alone.
	SSHOptions string
	// TagOutput asks for the rank in front of every line of output. Only Open MPI 4
	// hears it through the environment; see TagFlags for the others.
	TagOutput bool
}

// Variable is one environment variable.
type Variable struct{ Name, Value string }

// TagFlags are the flags of mpirun that put the rank in front of every line of
// output, for a line that we write ourselves.
func TagFlags(implementation Implementation) []string {
	switch implementation {
	case OpenMPI:
		return openMPITagFlags()
	case IntelMPI:
		return intelTagFlags()
	case MPICH:
		return mpichTagFlags()
	default:
		return nil
	}
}
