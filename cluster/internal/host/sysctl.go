package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Settings of the machine's kernel that kubelet changes when it starts.
var kubeletSysctls = []string{
	"vm/overcommit_memory",
	"vm/panic_on_oom",
	"kernel/panic",
	"kernel/panic_on_oops",
	"kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

// Machine is what must be put back when the cluster goes down.
type Machine struct {
	Sysctls     map[string]string `json:"sysctls"`
	Directories []string          `json:"directories"`
}

// Remember notes, once, how the machine was: kernel settings, and which of the
// directories that the cluster mounts over it had to create.
func Remember(file string, mountpoints []string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	machine := Machine{Sysctls: map[string]string{}}
	for _, name := range kubeletSysctls {
		if value, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
			machine.Sysctls[name] = strings.TrimSpace(string(value))
		}
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
	content, err := json.Marshal(machine)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// Restore puts the machine back as Remember found it.
func Restore(file string) error {
	content, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore the machine's settings: %w", err)
	}
	var machine Machine
	if err := json.Unmarshal(content, &machine); err != nil {
		return fmt.Errorf("restore the machine's settings from %s: %w", file, err)
	}
	for name, value := range machine.Sysctls {
		path := filepath.Join("/proc/sys", name)
		if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) == value {
			continue
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("restore kernel setting %s to %s: %w", name, value, err)
		}
	}
	for _, directory := range machine.Directories {
		// Only if it is still empty: others may have begun to use it.
		_ = os.Remove(directory)
	}
	return nil
}
