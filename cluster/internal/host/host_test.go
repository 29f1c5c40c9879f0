// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// The main thread keeps to the main goroutine: tests spoil the thread that they
// run on, and what the main thread is in counts as the whole process's.
func init() { runtime.LockOSThread() }

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: namespaces, mounts and control groups")
	}
}

// privateNetwork puts the test on a thread with a network of its own, so that
// nothing it does to the "machine" is done to the machine. It holds for the
// test's own goroutine, not for subtests.
func privateNetwork(t *testing.T) {
	t.Helper()
	needRoot(t)
	// Never unlocked: the thread ends with the test.
	runtime.LockOSThread()
	space, err := netns.New()
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { space.Close() })
}

// testLayout is a cluster that nobody has.
func testLayout(t *testing.T, block string) layout.Layout {
	t.Helper()
	network, err := layout.ParseNetwork(block)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	return layout.Layout{
		Name:    "ut-net",
		Cache:   filepath.Join(directory, "cache"),
		Data:    filepath.Join(directory, "data"),
		Run:     filepath.Join(directory, "run"),
		Network: network,
	}
}

// start runs a program until the test ends. Nobody waits for it before that:
// it stays a zombie when it has ended.
func start(t *testing.T, name string, arguments ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(name, arguments...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command
}

// await polls, because no duration is right on every machine.
func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !reached(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// mountTmpfs mounts one for the time of the test.
func mountTmpfs(t *testing.T, directory, options string) {
	t.Helper()
	needRoot(t)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("ut", directory, "tmpfs", 0, options); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(directory, unix.MNT_DETACH) })
}
