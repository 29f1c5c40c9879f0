// SPDX-License-Identifier: Apache-2.0

// Package protocol is the contract between the engine and the agent: the paths in the pods
// of a job, the variables that configure the agent, and the report of the agent. It has no
// logic, so that pure packages can import it.
package protocol

// Paths and ports in the pods of a job.
const (
	// Path of the agent's binary, in every pod.
	Path = "/opt/trireme/mpi-agent"
	// KeyDirectory has the job's keys. Each role only has the keys that it needs.
	KeyDirectory = "/etc/trireme/ssh"
	// ClockFile has the time since when all workers are running, as RFC 3339. It is empty
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

// VariablePrefix is the prefix of all variables of the agent.
const VariablePrefix = "TRIREME_"

// Environment variables that configure the agent.
const (
	// KeysVariable and HostfileVariable override the default paths.
	KeysVariable     = "TRIREME_KEYS"
	HostfileVariable = "TRIREME_HOSTFILE"
	ClockVariable    = "TRIREME_CLOCK_FILE"
	PortVariable     = "TRIREME_SSH_PORT"
	// GateTimeoutVariable is how long it may take to reach all workers once all of them are
	// running.
	GateTimeoutVariable = "TRIREME_GATE_TIMEOUT"
	// PortsVariable is the range of ports that are checked, or off.
	PortsVariable = "TRIREME_MPI_PORTS"
	// GraceVariable is how long a worker's processes have to exit.
	GraceVariable = "TRIREME_GRACE"
	// StragglerTimeoutVariable is how long ranks may continue after those of another host
	// have exited.
	StragglerTimeoutVariable = "TRIREME_STRAGGLER_TIMEOUT"
	// ImageSSHVariable means that the workers run the sshd of their image.
	ImageSSHVariable = "TRIREME_IMAGE_SSH"
	// RequireAllHostsVariable makes a run fail that succeeds without using every host.
	RequireAllHostsVariable = "TRIREME_REQUIRE_ALL_HOSTS"
	// ReportVariable is the path of the report; default: TerminationLog.
	ReportVariable = "TRIREME_TERMINATION_LOG"
	// TagOutputVariable is the implementation of MPI whose mpirun prints the rank in front
	// of every line.
	TagOutputVariable = "TRIREME_TAG_OUTPUT"
)
