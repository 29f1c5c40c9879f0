// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const testGroup = "ut-cgroup"

// groups lists the directories that the test's group has on this machine.
func groups(t *testing.T) []string {
	t.Helper()
	trees, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	if len(trees) == 0 {
		t.Skip("no control groups are mounted")
	}
	var all []string
	for _, tree := range trees {
		all = append(all, filepath.Join(tree.mountpoint, testGroup))
	}
	return all
}

func TestControlGroup(t *testing.T) {
	needRoot(t)
	all := groups(t)
	if err := checkCgroups(); err != nil {
		t.Errorf("a machine with control groups is refused: %v", err)
	}
	if err := os.Mkdir(all[0], 0o755); errors.Is(err, os.ErrPermission) {
		t.Skipf("cannot make a control group: %v", err)
	}
	t.Cleanup(func() { _ = RemoveCgroup(testGroup) })
	for range 2 { // the second time finds it
		if err := CreateCgroup(testGroup); err != nil {
			t.Fatal(err)
		}
	}
	if got := InCgroup(testGroup); got != nil {
		t.Errorf("processes %v are in a new group", got)
	}

	// One process directly in the group, in every hierarchy (which in v1 proves
	// that the group got CPUs), and one in a group below, as pods are.
	direct, below := start(t, "sleep", "600").Process.Pid, start(t, "sleep", "600").Process.Pid
	child := filepath.Join(all[0], "kubepods", "pod1")
	if err := os.MkdirAll(child, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, group := range all {
		if _, err := os.Stat(group); err != nil {
			t.Errorf("%v", err)
		}
		if group == all[0] && len(all) == 1 {
			continue // v2: a group with children that limit holds no process
		}
		enter(t, group, direct)
	}
	wantProcesses := []int{below}
	if len(all) > 1 {
		wantProcesses = append(wantProcesses, direct)
	}
	enter(t, child, below)
	if diff := cmp.Diff(asSet(wantProcesses), asSet(InCgroup(testGroup))); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}

	if err := Kill(func() []int { return InCgroup(testGroup) }, time.Minute); err != nil {
		t.Fatal(err)
	}
	if Alive(below) {
		t.Error("a process of the group lives")
	}
	if err := RemoveCgroup(testGroup); err != nil {
		t.Fatal(err)
	}
	for _, group := range all {
		if _, err := os.Stat(group); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left (%v)", group, err)
		}
	}
	if err := RemoveCgroup(testGroup); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}

func enter(t *testing.T, group string, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		t.Errorf("enter %s: %v", group, err)
	}
}

func asSet(pids []int) map[int]int {
	set := map[int]int{}
	for _, pid := range pids {
		set[pid]++
	}
	return set
}

// A machine with v2 alone is rarely the one that the tests run on; the files
// are all that this part knows of it.
func TestControllersAreDelegated(t *testing.T) {
	root := t.TempDir()
	group := filepath.Join(root, "group")
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		filepath.Join(root, "cgroup.subtree_control"):  "cpuset cpu io memory pids\n",
		filepath.Join(group, "cgroup.subtree_control"): "cpuset cpu memory\n",
	}
	for file, content := range files {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := delegateControllers(root, group); err != nil {
		t.Fatal(err)
	}
	// The machine's root offers everything already and must not be touched;
	// a plain file holds what was written to it last.
	files[filepath.Join(group, "cgroup.subtree_control")] = "+pids"
	for file, want := range files {
		if content, err := os.ReadFile(file); err != nil || string(content) != want {
			t.Errorf("%s holds %q (%v), want %q", file, content, err, want)
		}
	}
	if err := delegateControllers(t.TempDir(), group); err == nil {
		t.Error("no error where there are no controllers")
	}
}

func TestCPUsAreInherited(t *testing.T) {
	root := t.TempDir()
	group := filepath.Join(root, "group")
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, value := range map[string]string{"cpuset.cpus": "0-3\n", "cpuset.mems": "0\n"} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := inheritCPUSet(root, group); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"cpuset.cpus": "0-3\n", "cpuset.mems": "0\n"} {
		if got, err := os.ReadFile(filepath.Join(group, file)); err != nil || string(got) != want {
			t.Errorf("%s is %q (%v), want %q", file, got, err, want)
		}
	}
	if err := inheritCPUSet(t.TempDir(), group); err == nil {
		t.Error("no error where there is nothing to inherit")
	}
}
