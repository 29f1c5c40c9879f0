// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// neighborLimits are the sizes of the kernel's table of neighbors, which all network
// namespaces share: 64 pods that connect to each other, as ranks do, need 4,032 entries.
// With the kernel's 1,024, three quarters of their connections were not open after 8 s.
// These suffice for 250 pods, the maximum of the node.
var neighborLimits = map[string]int{
	"net/ipv4/neigh/default/gc_thresh1": 16384,
	"net/ipv4/neigh/default/gc_thresh2": 32768,
	"net/ipv4/neigh/default/gc_thresh3": 65536,
}

// kubeletSysctls are the kernel settings that the kubelet or `up` changes.
var kubeletSysctls = []string{
	"net/ipv4/neigh/default/gc_thresh1",
	"net/ipv4/neigh/default/gc_thresh2",
	"net/ipv4/neigh/default/gc_thresh3",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
	"kernel/panic",
	"kernel/panic_on_oops",
	"kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

// Machine is the state to restore when the last cluster stops. It is not restored
// while a cluster is running: removing a directory that is a mount point in a
// cluster's mount namespace would detach the mount there.
type Machine struct {
	Sysctls     map[string]string `json:"sysctls"`
	Directories []string          `json:"directories"`
	Clusters    []string          `json:"clusters"`
}

// Remember records that a cluster is running and, for the first one, the state of the
// machine: kernel settings, and which mount points had to be created.
func Remember(ctx context.Context, file, cluster string, mountpoints []string) error {
	return changeRecord(ctx, file, func(machine *Machine) error {
		if len(machine.Clusters) == 0 || machine.Sysctls == nil {
			machine.Sysctls = map[string]string{}
		}
		// A running cluster of an older version of this program has not recorded all.
		for name, value := range currentSysctls() {
			if _, recorded := machine.Sysctls[name]; !recorded {
				machine.Sysctls[name] = value
			}
		}
		if !slices.Contains(machine.Clusters, cluster) {
			machine.Clusters = append(machine.Clusters, cluster)
		}
		for _, directory := range mountpoints {
			if _, err := os.Stat(directory); err == nil {
				continue
			}
			if err := os.MkdirAll(directory, 0o755); err != nil {
				return fmt.Errorf("mount point %s: %w", directory, err)
			}
			machine.Directories = append(machine.Directories, directory)
		}
		return nil
	})
}

// RaiseNeighborLimits raises the limits that are lower. Remember must be called before.
func RaiseNeighborLimits() error {
	for name, wanted := range neighborLimits {
		path := filepath.Join("/proc/sys", name)
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // only the first network namespace has them
		}
		if err != nil {
			return fmt.Errorf("kernel setting %s: %w", name, err)
		}
		if now, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && now >= wanted {
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(wanted)), 0o644); err != nil {
			return fmt.Errorf("let many pods connect to each other: %w", err)
		}
	}
	return nil
}

func currentSysctls() map[string]string {
	values := map[string]string{}
	for _, name := range kubeletSysctls {
		if value, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
			values[name] = strings.TrimSpace(string(value))
		}
	}
	return values
}

// Restore records that a cluster has stopped. After the last one, it restores the
// state of the machine before the first one.
func Restore(ctx context.Context, file, cluster string) error {
	return changeRecord(ctx, file, func(machine *Machine) error {
		machine.Clusters = slices.DeleteFunc(machine.Clusters, func(name string) bool { return name == cluster })
		if len(machine.Clusters) > 0 {
			return nil
		}
		for _, directory := range machine.Directories {
			// Only if it is still empty: other programs may use it now.
			_ = os.Remove(directory)
		}
		machine.Directories = nil
		return machine.restoreSysctls()
	})
}

func (m *Machine) restoreSysctls() error {
	for name, value := range m.Sysctls {
		path := filepath.Join("/proc/sys", name)
		if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) == value {
			continue
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("restore kernel setting %s to %s: %w", name, value, err)
		}
	}
	return nil
}

// changeRecord lets one process at a time change the record, which exists while a
// cluster is running. It saves the record even if the change failed halfway.
func changeRecord(ctx context.Context, file string, change func(*Machine) error) error {
	unlock, err := Lock(ctx, file+".lock", func(string) {})
	if err != nil {
		return err
	}
	defer unlock()
	var machine Machine
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the machine's settings: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(content, &machine); err != nil {
			return fmt.Errorf("the machine's settings in %s: %w", file, err)
		}
	}
	changed := change(&machine)
	if changed == nil && len(machine.Clusters) == 0 {
		return errors.Join(removeIfThere(file), removeIfThere(file+".lock"))
	}
	content, err = json.Marshal(machine)
	if err != nil {
		return errors.Join(changed, err)
	}
	return errors.Join(changed, os.WriteFile(file, content, 0o600))
}

func removeIfThere(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
