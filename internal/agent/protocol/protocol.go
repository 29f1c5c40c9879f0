// Package protocol is what the engine and the agent agree on: where files are in the
// pods of a job, the variables that configure the agent, and the report that it
// leaves at the end. It has no logic, so that pure packages can import it.
package protocol

// Where things are in the pods of a job.
const (
	// Path of the agent's binary, in every pod.
	Path = "/opt/trireme/mpi-agent"
	// KeyDirectory has the job's keys: each role has the halves that it needs.
	KeyDirectory = "/etc/trireme/ssh"
	// ClockFile holds, as RFC 3339, since when all workers run. It is empty
	// before that.
	ClockFile = "/etc/trireme/pod/workers-running-at"
	// Port of the workers' SSH server.
	Port = 2222
)

// Files of KeyDirectory, and keys of the Secret that it is mounted from.
const (
	// ClientKey and ClientPublicKey are the pair that the launcher logs in with.
	ClientKey       = "id_rsa"
	ClientPublicKey = "id_rsa.pub"
	AuthorizedKeys  = "authorized_keys"
	// HostKey and HostPublicKey are the pair that workers identify themselves with.
	HostKey       = "host_key"
	HostPublicKey = "host_key.pub"
)

// VariablePrefix is what all of them begin with.
const VariablePrefix = "TRIREME_"

// Environment variables that the agent is told things by.
const (
	// KeysVariable and HostfileVariable name other places than the usual.
	KeysVariable     = "TRIREME_KEYS"
	HostfileVariable = "TRIREME_HOSTFILE"
	ClockVariable    = "TRIREME_CLOCK_FILE"
	PortVariable     = "TRIREME_SSH_PORT"
	// GateTimeoutVariable is how long workers may take to be reached once all of them run.
	GateTimeoutVariable = "TRIREME_GATE_TIMEOUT"
	// PortsVariable names the ports that are checked, or is off.
	PortsVariable = "TRIREME_MPI_PORTS"
	// GraceVariable is how long a worker's processes have to end.
	GraceVariable = "TRIREME_GRACE"
	// StragglerTimeoutVariable is how long some hosts may go on after others have ended.
	StragglerTimeoutVariable = "TRIREME_STRAGGLER_TIMEOUT"
	// ImageSSHVariable: the workers run an sshd of their image's.
	ImageSSHVariable = "TRIREME_IMAGE_SSH"
	// RequireAllHostsVariable: a run that ends well without using every host has failed.
	RequireAllHostsVariable = "TRIREME_REQUIRE_ALL_HOSTS"
	// ReportVariable is where the report is written, if not to TerminationLog.
	ReportVariable = "TRIREME_TERMINATION_LOG"
	// TagOutputVariable names the MPI whose mpirun shall put the rank in front of
	// every line.
	TagOutputVariable = "TRIREME_TAG_OUTPUT"
)
