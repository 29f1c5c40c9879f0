// SPDX-License-Identifier: Apache-2.0

// Package agent starts MPI in pods of any image, under any user. One static binary is in
// every pod at the same path. In workers it is the SSH server. In the launcher it is the
// ssh that mpirun calls, and it wraps the user's command.
//
// Output of mpirun, its daemons and the ranks is passed through and never logged: command
// lines and environments may contain secrets.
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

// Variables that launch sets for the rsh that mpirun calls.
const (
	launchVariable  = "TRIREME_LAUNCH"
	recordsVariable = "TRIREME_RECORDS"
)

func variable(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

func durationVariable(name string, fallback time.Duration) (time.Duration, error) {
	value := os.Getenv(name)
	if value == "" {
		return fallback, nil
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

// readKey reads a private key. No error contains the key.
func readKey(name string) (ssh.Signer, error) {
	path := filepath.Join(variable(protocol.KeysVariable, protocol.KeyDirectory), name)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the job's key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(content)
	if err != nil {
		return nil, fmt.Errorf("%s is not a valid private key", path)
	}
	return signer, nil
}

// readPublicKeys reads public keys, one per line.
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
