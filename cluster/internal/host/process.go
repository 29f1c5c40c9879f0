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

// Describe names a process as an error message should.
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

// pidOf takes the number out of a path below /proc/PID.
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
	// The state follows the command's name, which may itself hold anything.
	rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(rest), "Z")
}

// StartTime tells two processes apart that had the same number one after the
// other.
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

// InNetworkNamespace lists the processes that run in the namespace held by a
// file, which are the cluster's components and the shims of its pods.
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

// Kill ends the processes that list names, again and again, because a dying
// parent may still have started one, and waits until none is left.
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

// ForgetShellLimits gives this process, and so every pod, the limits of a
// server instead of those of the shell that the cluster was started from.
func ForgetShellLimits() {
	syscall.Umask(0o022)
	const manyFiles = 1 << 20
	for resource, most := range map[int]uint64{unix.RLIMIT_NOFILE: manyFiles, unix.RLIMIT_MEMLOCK: unix.RLIM_INFINITY} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) != nil {
			continue
		}
		// Raising the hard limit takes a right that root may not have.
		if unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}) != nil {
			_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: limit.Max, Max: limit.Max})
		}
	}
}
