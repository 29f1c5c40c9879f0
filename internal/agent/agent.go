// Package agent starts MPI in pods of any image, under any user. One static
// binary is in every pod at the same path: as an SSH server in workers, and in
// the launcher as the ssh that mpirun calls and as what stands in front of the
// user's command.
//
// What mpirun, its daemons and the ranks say is passed on and never logged:
// command lines and environments may hold what is secret.
package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"
)

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
	// launchVariable and recordsVariable are from `launch` to the `rsh` that mpirun calls.
	launchVariable  = "TRIREME_LAUNCH"
	recordsVariable = "TRIREME_RECORDS"
)

func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func durationVariable(name string, otherwise time.Duration) (time.Duration, error) {
	value := os.Getenv(name)
	if value == "" {
		return otherwise, nil
	}
	duration, err := time.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("%s is not a duration such as 60s", name)
	}
	return duration, nil
}

func portVariable() (int, error) {
	value := variable(PortVariable, strconv.Itoa(Port))
	port, err := strconv.Atoi(value)
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("%s is not a port", PortVariable)
	}
	return port, nil
}

// readKey reads a private key. Its content is in no error.
func readKey(name string) (ssh.Signer, error) {
	path := filepath.Join(variable(KeysVariable, KeyDirectory), name)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the job's key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(content)
	if err != nil {
		return nil, fmt.Errorf("%s is not a private key that can be read", path)
	}
	return signer, nil
}

// readPublicKeys reads public keys, one a line.
func readPublicKeys(name string) ([]ssh.PublicKey, error) {
	path := filepath.Join(variable(KeysVariable, KeyDirectory), name)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the job's public key: %w", err)
	}
	var keys []ssh.PublicKey
	for len(content) > 0 {
		key, _, _, rest, err := ssh.ParseAuthorizedKey(content)
		if err != nil {
			break
		}
		keys, content = append(keys, key), rest
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no public key", path)
	}
	return keys, nil
}
