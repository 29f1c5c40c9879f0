// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

func mounted(t *testing.T, path string) bool {
	t.Helper()
	yes, err := mountinfo.Mounted(path)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestUnmount(t *testing.T) {
	tests := map[string]func(t *testing.T, directory string) string{
		"the directory's own name": func(_ *testing.T, directory string) string { return directory },
		"with a slash at the end":  func(_ *testing.T, directory string) string { return directory + "/" },
		"by way of a link": func(t *testing.T, directory string) string {
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(directory, link); err != nil {
				t.Fatal(err)
			}
			return link
		},
	}
	for sentence, named := range tests {
		t.Run(sentence, func(t *testing.T) {
			needRoot(t)
			base := t.TempDir()
			directory, beside := filepath.Join(base, "run"), filepath.Join(base, "run-2")
			nested := filepath.Join(directory, "deep", "nested")
			// Twice on one place, one within another, one with a space, and one
			// that only looks as if it were below.
			mountTmpfs(t, directory, "")
			mountTmpfs(t, directory, "")
			mountTmpfs(t, filepath.Dir(nested), "")
			mountTmpfs(t, nested, "")
			mountTmpfs(t, filepath.Join(directory, "a space"), "")
			mountTmpfs(t, beside, "")
			touch(t, filepath.Join(nested, "file"))

			if err := Unmount(named(t, directory), filepath.Join(base, "missing")); err != nil {
				t.Fatal(err)
			}
			if mounted(t, directory) {
				t.Errorf("%s is still mounted", directory)
			}
			if entries, err := os.ReadDir(directory); err != nil || len(entries) != 0 {
				t.Errorf("%s still shows %v (%v)", directory, entries, err)
			}
			if !mounted(t, beside) {
				t.Errorf("%s was unmounted, which is none of ours", beside)
			}
		})
	}
}

// privateMounts puts the test on a thread that sees mounts of its own.
func privateMounts(t *testing.T) {
	t.Helper()
	needRoot(t)
	// Never unlocked: the thread ends with the test.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("cannot make a mount namespace: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
}

func TestArrangeMounts(t *testing.T) {
	base := t.TempDir()
	fixed, ours := mkdir(t, filepath.Join(base, "fixed")), filepath.Join(base, "data", "ours")
	touch(t, filepath.Join(fixed, "theirs"))
	privateMounts(t)
	if err := ArrangeMounts(map[string]string{fixed: ours}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(fixed, unix.MNT_DETACH) })
	if exists(t, filepath.Join(fixed, "theirs")) {
		t.Error("the cluster sees what another has in the directory")
	}
	touch(t, filepath.Join(fixed, "socket"))
	if !exists(t, filepath.Join(ours, "socket")) {
		t.Error("what the cluster writes does not end in its own directory")
	}
	// The rest of the process is still on the machine.
	outside := make(chan bool)
	go func() {
		_, err := os.Stat(filepath.Join(fixed, "theirs"))
		outside <- err == nil
	}()
	if !<-outside {
		t.Error("the machine does not see its directory any more")
	}
	self, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(fixed))
	if err != nil || len(self) != 1 {
		t.Fatalf("mounts %v (%v)", self, err)
	}
	if !strings.Contains(self[0].Optional, "shared:") {
		t.Errorf("mount has %q: volumes with mount propagation would not work", self[0].Optional)
	}
	if err := ArrangeMounts(map[string]string{filepath.Join(base, "missing"): ours}); err == nil {
		t.Error("no error for a directory that cannot be mounted over")
	}
}

func TestEnterMountNamespace(t *testing.T) {
	needRoot(t)
	child := exec.Command("sleep", "600")
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if err := child.Start(); err != nil {
		t.Skipf("cannot make a mount namespace: %v", err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	namespace := func(path string) string {
		link, err := os.Readlink(path)
		if err != nil {
			t.Error(err)
		}
		return link
	}
	want := namespace(fmt.Sprintf("/proc/%d/ns/mnt", child.Process.Pid))
	if want == namespace("/proc/self/ns/mnt") {
		t.Fatal("the child has no namespace of its own: the test proves nothing")
	}
	if err := onThreadOfItsOwn(func() error {
		if err := EnterMountNamespace(child.Process.Pid); err != nil {
			return err
		}
		if got := namespace("/proc/thread-self/ns/mnt"); got != want {
			t.Errorf("the thread is in %s, want %s", got, want)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := EnterMountNamespace(gone(t)); err == nil {
		t.Error("no error for a process that is gone")
	}
}
