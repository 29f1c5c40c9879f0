// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// hierarchy is one mounted tree of control groups: the only one on a machine
// with cgroup v2, one of several with v1.
type hierarchy struct {
	mountpoint string
	unified    bool
	cpuset     bool
}

func hierarchies() ([]hierarchy, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("list cgroup mounts: %w", err)
	}
	var found []hierarchy
	seen := map[string]bool{}
	for _, mount := range mounts {
		if !strings.HasPrefix(mount.Mountpoint, "/sys/fs/cgroup") || seen[mount.Mountpoint] {
			continue
		}
		seen[mount.Mountpoint] = true
		options := "," + mount.VFSOptions + ","
		found = append(found, hierarchy{
			mountpoint: mount.Mountpoint,
			unified:    mount.FSType == "cgroup2",
			cpuset:     strings.Contains(options, ",cpuset,"),
		})
	}
	return found, nil
}

func checkCgroups() error {
	found, err := hierarchies()
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("no cgroup file system is mounted on /sys/fs/cgroup: pods cannot be limited; mount it (mount -t cgroup2 none /sys/fs/cgroup)")
	}
	return nil
}

// CreateCgroup creates the parent group of all pods, in every hierarchy. The kubelet
// expects it to exist.
func CreateCgroup(name string) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	onlyUnified := len(trees) == 1 && trees[0].unified
	for _, tree := range trees {
		group := filepath.Join(tree.mountpoint, name)
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("create control group %s: %w", group, err)
		}
		switch {
		case onlyUnified:
			err = delegateControllers(tree.mountpoint, group)
		case tree.cpuset:
			err = inheritCPUSet(tree.mountpoint, group)
		}
		if err != nil {
			return fmt.Errorf("create control group %s: %w", group, err)
		}
	}
	return nil
}

// neededControllers are the controllers that the kubelet uses for the limits of pods.
var neededControllers = []string{"cpu", "cpuset", "memory", "pids"}

// delegateControllers enables the controllers for the children of the group. systemd
// has already enabled them for the children of the root.
func delegateControllers(root, group string) error {
	for _, directory := range []string{root, group} {
		file := filepath.Join(directory, "cgroup.subtree_control")
		offered, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, controller := range neededControllers {
			if slices.Contains(strings.Fields(string(offered)), controller) {
				continue
			}
			if err := os.WriteFile(file, []byte("+"+controller), 0o644); err != nil {
				return fmt.Errorf("enable controller %s: %w; in a container, use a private cgroup namespace (--privileged --cgroupns=private)", controller, err)
			}
		}
	}
	return nil
}

// inheritCPUSet copies the parent's CPUs and memory nodes: in v1 a new group
// has none, and no process can enter it.
func inheritCPUSet(root, group string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(group, file), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// InCgroup lists the processes in and below the group, over all hierarchies.
func InCgroup(name string) []int {
	trees, err := hierarchies()
	if err != nil {
		return nil
	}
	unique := map[int]bool{}
	var pids []int
	for _, tree := range trees {
		walkGroups(filepath.Join(tree.mountpoint, name), func(group string) {
			for _, pid := range processesOf(group) {
				if !unique[pid] {
					unique[pid] = true
					pids = append(pids, pid)
				}
			}
		})
	}
	return pids
}

func processesOf(group string) []int {
	file, err := os.Open(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return nil
	}
	defer file.Close()
	var pids []int
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		if pid, err := strconv.Atoi(scanner.Text()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// walkGroups visits children before their parents, so that groups can be removed.
func walkGroups(group string, visit func(string)) {
	entries, err := os.ReadDir(group)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			walkGroups(filepath.Join(group, entry.Name()), visit)
		}
	}
	visit(group)
}

// RemoveCgroup removes the group from every hierarchy. The kernel may need a
// moment after the last process of a group has ended.
func RemoveCgroup(name string) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(3 * time.Second)
	for {
		err = nil
		for _, tree := range trees {
			walkGroups(filepath.Join(tree.mountpoint, name), func(group string) {
				if failed := unix.Rmdir(group); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
					err = fmt.Errorf("remove control group %s: %w", group, failed)
				}
			})
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
