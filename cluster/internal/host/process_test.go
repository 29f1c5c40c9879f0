// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// state is what the kernel says of a process, read in another way than the
// code does.
func state(pid int) string {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(content), "\nState:\t")
	return rest[:min(1, len(rest))]
}

// zombie is a process that has ended and that nobody has asked how.
func zombie(t *testing.T) int {
	t.Helper()
	command := start(t, "/bin/sh", "-c", "exit 0")
	await(t, "the child is a zombie", func() bool { return state(command.Process.Pid) == "Z" })
	return command.Process.Pid
}

// gone is the number of a process that does not exist any more.
func gone(t *testing.T) int {
	t.Helper()
	command := exec.Command("/bin/sh", "-c", "exit 0")
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	return command.Process.Pid
}

func TestDescribe(t *testing.T) {
	living := start(t, "sleep", "600").Process.Pid
	long := start(t, "/bin/sh", "-c", "exec sleep 600 # "+strings.Repeat("x", 10)).Process.Pid
	await(t, "the shell has become sleep", func() bool { return strings.Contains(Describe(long), "(sleep") })
	dead, missing := zombie(t), gone(t)
	tests := map[string]struct {
		pid  int
		want string
	}{
		"a process that runs":   {pid: living, want: fmt.Sprintf("process %d (sleep 600)", living)},
		"one that changed":      {pid: long, want: fmt.Sprintf("process %d (sleep 600)", long)},
		"a zombie has no words": {pid: dead, want: fmt.Sprintf("process %d", dead)},
		"one that is gone":      {pid: missing, want: fmt.Sprintf("process %d", missing)},
		"one that hides":        {pid: 0, want: "a process in another PID namespace"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			if got := Describe(test.pid); got != test.want {
				t.Errorf("Describe gives %q, want %q", got, test.want)
			}
		})
	}
}

func TestDescribeCutsLongCommands(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	// One of the two has the middle of a letter at the limit.
	for _, first := range []string{"", "x"} {
		long := filepath.Join(t.TempDir(), first+strings.Repeat("ü", 100))
		if err := os.Symlink(sleep, long); err != nil {
			t.Fatal(err)
		}
		pid := start(t, long, "600").Process.Pid
		// The kernel lets go of the parent before it has set the command line.
		await(t, "the process has its command line", func() bool { return strings.Contains(Describe(pid), "(") })
		got := Describe(pid)
		if len(got) > 120 || !strings.HasSuffix(got, "...)") {
			t.Errorf("%q is not cut", got)
		}
		if strings.ToValidUTF8(got, "?") != got {
			t.Errorf("%q is cut within a letter", got)
		}
	}
}

func TestAlive(t *testing.T) {
	// A program of any name, also one that looks like the end of the name and
	// a zombie's state.
	odd := filepath.Join(t.TempDir(), "a) Z 1 (b")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sleep, odd); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		pid  int
		want bool
	}{
		"this one":                   {pid: os.Getpid(), want: true},
		"a child":                    {pid: start(t, "sleep", "600").Process.Pid, want: true},
		"one with a misleading name": {pid: start(t, odd, "600").Process.Pid, want: true},
		"a zombie":                   {pid: zombie(t)},
		"one that is gone":           {pid: gone(t)},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			if got := Alive(test.pid); got != test.want {
				t.Errorf("Alive(%d) = %v, want %v", test.pid, got, test.want)
			}
		})
	}
}

func TestStartTime(t *testing.T) {
	odd := filepath.Join(t.TempDir(), "a) 1 (b")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sleep, odd); err != nil {
		t.Fatal(err)
	}
	plain, named := start(t, "sleep", "600").Process.Pid, start(t, odd, "600").Process.Pid
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", plain))
	if err != nil {
		t.Fatal(err)
	}
	// Field 22 of proc_pid_stat(5), where the name is one word.
	if got, want := StartTime(plain), strings.Fields(string(stat))[21]; got != want {
		t.Errorf("start time is %q, want %q", got, want)
	}
	// The two began at the same time, within a few ticks of 10 ms.
	var first, second int
	fmt.Sscan(StartTime(plain), &first)
	fmt.Sscan(StartTime(named), &second)
	if first == 0 || second < first || second > first+1000 {
		t.Errorf("start times are %d and, with a misleading name, %d", first, second)
	}
	if got := StartTime(gone(t)); got != "" {
		t.Errorf("a process that is gone started at %q", got)
	}
}

func TestKill(t *testing.T) {
	// Ignores everything that can be ignored, and goes on to do so as sleep.
	stubborn := start(t, "/bin/sh", "-c", "trap '' TERM INT HUP; exec sleep 600").Process.Pid
	late := start(t, "sleep", "600").Process.Pid
	bystander := start(t, "sleep", "600").Process.Pid
	dead, missing := zombie(t), gone(t)
	calls := 0
	err := Kill(func() []int {
		calls++
		if calls == 1 {
			return []int{os.Getpid(), stubborn, dead, missing}
		}
		// One that a dying parent started.
		return []int{os.Getpid(), stubborn, late, dead}
	}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for what, pid := range map[string]int{"the stubborn one": stubborn, "the late one": late} {
		if Alive(pid) {
			t.Errorf("%s lives", what)
		}
	}
	if !Alive(bystander) {
		t.Error("a process that was not named was ended")
	}
	if err := Kill(func() []int { return nil }, 0); err != nil {
		t.Errorf("nothing to end: %v", err)
	}
}

func TestKillDoesNotWaitForEver(t *testing.T) {
	// Something that is alive each time: a new one takes the old one's place.
	var last int
	err := Kill(func() []int {
		last = start(t, "sleep", "600").Process.Pid
		return []int{last}
	}, 50*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", last)) || !strings.Contains(err.Error(), "cannot be killed") {
		t.Errorf("error %v does not name the process", err)
	}
}

func TestInNetworkNamespace(t *testing.T) {
	privateNetwork(t)
	file := filepath.Join(t.TempDir(), "missing")
	if got := InNetworkNamespace(file); got != nil {
		t.Errorf("processes %v are in a namespace that does not exist", got)
	}
	// A child that is born on this thread is born into its network.
	child := start(t, "sleep", "600").Process.Pid
	namespace := fmt.Sprintf("/proc/%d/ns/net", child)
	got := InNetworkNamespace(namespace)
	if len(got) != 1 || got[0] != child {
		t.Errorf("processes %v are in the namespace, want %d alone", got, child)
	}
	if err := Kill(func() []int { return InNetworkNamespace(namespace) }, time.Minute); err != nil {
		t.Fatal(err)
	}
	if Alive(child) {
		t.Error("the child lives")
	}
}
