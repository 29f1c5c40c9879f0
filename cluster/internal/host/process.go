// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Describe describes a process for an error message.
func Describe(pid int) string {
	if pid == 0 {
		return "a process in another PID namespace"
	}
	line := CommandLine(pid)
	if line == "" {
		return fmt.Sprintf("process %d", pid)
	}
	if len(line) > 80 {
		line = strings.ToValidUTF8(line[:80], "") + "..."
	}
	return fmt.Sprintf("process %d (%s)", pid, line)
}

// CommandLine is how a process was started; a zombie has none.
func CommandLine(pid int) string {
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " "))
}

// pidOf returns the PID of a path below /proc/PID.
func pidOf(path string) int {
	pid, err := strconv.Atoi(strings.Split(path, "/")[2])
	if err != nil {
		return 0
	}
	return pid
}

// Alive tells whether a process runs and is not a zombie.
func Alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state follows the name of the command, which may contain any character.
	rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(rest), "Z")
}

// StartTime distinguishes processes that had the same PID one after the other.
func StartTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const startTimeAfterName = 19
	if len(fields) <= startTimeAfterName {
		return ""
	}
	return fields[startTimeAfterName]
}

// InNetworkNamespace lists the processes in the network namespace of a file: the
// cluster's components and the shims of its pods.
func InNetworkNamespace(file string) []int {
	var want syscall.Stat_t
	if syscall.Stat(file, &want) != nil {
		return nil
	}
	var pids []int
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, link := range links {
		var have syscall.Stat_t
		if syscall.Stat(link, &have) == nil && have.Ino == want.Ino && have.Dev == want.Dev {
			pids = append(pids, pidOf(link))
		}
	}
	slices.Sort(pids)
	return pids
}

// Kill kills the processes that list returns and waits until none is left. It repeats
// this, because a parent may start a process before it exits.
func Kill(list func() []int, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		var living []int
		for _, pid := range list() {
			if pid == os.Getpid() || !Alive(pid) {
				continue
			}
			living = append(living, pid)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("stop %s: %w", Describe(pid), err)
			}
		}
		if len(living) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s cannot be killed; it hangs in the kernel: restart the machine", Describe(living[0]))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ForgetShellLimits raises the resource limits of this process, and therefore of all
// pods, which would otherwise have those of the user's shell.
func ForgetShellLimits() {
	syscall.Umask(0o022)
	const manyFiles = 1 << 20
	for resource, most := range map[int]uint64{unix.RLIMIT_NOFILE: manyFiles, unix.RLIMIT_MEMLOCK: unix.RLIM_INFINITY} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) != nil {
			continue
		}
		// Raising the hard limit needs a capability that root may not have.
		if unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}) != nil {
			_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: limit.Max, Max: limit.Max})
		}
	}
}
