// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/cluster/internal/host"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// recordPid records the process of a component with its start time, so that the next
// supervisor can stop it if this one is killed, and never stops another process with
// the same PID.
func (s *Supervisor) recordPid(name string, pid int) error {
	if err := os.MkdirAll(s.layout.Pids(), 0o700); err != nil {
		return err
	}
	content := fmt.Sprintf("%d %s", pid, host.StartTime(pid))
	return os.WriteFile(filepath.Join(s.layout.Pids(), name), []byte(content), 0o600)
}

// endOrphans stops the components of a supervisor that was killed.
func (s *Supervisor) endOrphans() error {
	return host.Kill(func() []int { return recorded(s.layout.Pids()) }, 10*time.Second)
}

func recorded(directory string) []int {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			continue
		}
		number, startTime, _ := strings.Cut(string(content), " ")
		if pid, err := strconv.Atoi(number); err == nil && startTime != "" && host.StartTime(pid) == startTime {
			pids = append(pids, pid)
		}
	}
	return pids
}

// IsComponent reports whether a supervisor started the process.
func IsComponent(l layout.Layout, pid int) bool {
	return slices.Contains(recorded(l.Pids()), pid)
}
