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

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// Variables from `launch` to the `rsh` that mpirun calls.
const (
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
	value := variable(protocol.PortVariable, strconv.Itoa(protocol.Port))
	port, err := strconv.Atoi(value)
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("%s is not a port", protocol.PortVariable)
	}
	return port, nil
}

// readKey reads a private key. Its content is in no error.
func readKey(name string) (ssh.Signer, error) {
	path := filepath.Join(variable(protocol.KeysVariable, protocol.KeyDirectory), name)
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
	path := filepath.Join(variable(protocol.KeysVariable, protocol.KeyDirectory), name)
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
