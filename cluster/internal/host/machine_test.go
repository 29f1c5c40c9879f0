// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMountpointsComeAndGo(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "machine.json")
	existing, missing, used := mkdir(t, filepath.Join(base, "existing")), filepath.Join(base, "missing"), filepath.Join(base, "used")
	mountpoints := []string{existing, missing, used}
	if err := Remember(t.Context(), file, "trireme", mountpoints); err != nil {
		t.Fatal(err)
	}
	for _, directory := range mountpoints {
		if !exists(t, directory) {
			t.Errorf("%s cannot be mounted over: it does not exist", directory)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file of mode %v (%v)", info.Mode(), err)
	}

	// By the time of a second `up`, all of them exist; only the first time
	// tells which were there before the cluster.
	remembered, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Remember(t.Context(), file, "trireme", mountpoints); err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(remembered), string(again)); diff != "" {
		t.Errorf("the second time changed what was remembered (-want +got):\n%s", diff)
	}

	mkdir(t, filepath.Join(used, "somebody's"))
	if err := Restore(t.Context(), file, "trireme"); err != nil {
		t.Fatal(err)
	}
	for directory, want := range map[string]bool{existing: true, missing: false, used: true} {
		if exists(t, directory) != want {
			t.Errorf("%s exists = %v, want %v", directory, !want, want)
		}
	}
}

// TestLastClusterRestores: a directory that is still mounted over in another
// cluster's namespace must stay, and so must the record of how it all was.
func TestLastClusterRestores(t *testing.T) {
	base := t.TempDir()
	file, mountpoint := filepath.Join(base, "machine.json"), filepath.Join(base, "mountpoint")
	for _, cluster := range []string{"trireme", "trireme-test"} {
		if err := Remember(t.Context(), file, cluster, []string{mountpoint}); err != nil {
			t.Fatal(err)
		}
	}
	if err := Restore(t.Context(), file, "trireme"); err != nil {
		t.Fatal(err)
	}
	if !exists(t, mountpoint) || !exists(t, file) {
		t.Error("the first cluster to end took away what the other one uses")
	}
	if err := Restore(t.Context(), file, "trireme-test"); err != nil {
		t.Fatal(err)
	}
	if exists(t, mountpoint) || exists(t, file) || exists(t, file+".lock") {
		t.Error("the last cluster to end left something")
	}
}

func TestRememberFailsWithTheMountpoint(t *testing.T) {
	base := t.TempDir()
	blocked := filepath.Join(base, "file", "directory")
	if err := os.WriteFile(filepath.Dir(blocked), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Remember(t.Context(), filepath.Join(base, "machine.json"), "trireme", []string{blocked})
	if err == nil || !strings.Contains(err.Error(), blocked) {
		t.Errorf("error %v does not name the directory", err)
	}
}

func TestKernelSettingsAreRemembered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machine.json")
	if err := Remember(t.Context(), file, "trireme", nil); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var machine Machine
	if err := json.Unmarshal(content, &machine); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"} {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			continue // not every kernel shows it
		}
		if got, want := machine.Sysctls[name], strings.TrimSpace(string(value)); got != want {
			t.Errorf("%s is remembered as %q, it is %q", name, got, want)
		}
	}
}

// A setting of the network, because a test can have a network of its own.
func TestKernelSettingsAreRestored(t *testing.T) {
	privateNetwork(t)
	const setting = "net/ipv4/conf/all/log_martians"
	path := filepath.Join("/proc/sys", setting)
	set := func(value string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			t.Skipf("cannot change %s: %v", setting, err)
		}
	}
	original := kubeletSysctls
	kubeletSysctls = []string{setting, "not/a/setting"}
	t.Cleanup(func() { kubeletSysctls = original })
	file := filepath.Join(t.TempDir(), "machine.json")
	set("0")
	if err := Remember(t.Context(), file, "trireme", nil); err != nil {
		t.Fatal(err)
	}
	set("1") // as kubelet would
	if err := Restore(t.Context(), file, "trireme"); err != nil {
		t.Fatal(err)
	}
	if value, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(value)) != "0" {
		t.Errorf("%s is %q (%v), want 0", setting, value, err)
	}
}

func TestRestore(t *testing.T) {
	tests := map[string]struct {
		content   string // "-" for none
		wantError string
	}{
		"nothing was remembered":                        {content: "-"},
		"nothing was changed":                           {content: `{"sysctls":{},"directories":null}`},
		"a setting that the kernel does not have":       {content: `{"sysctls":{"not/a/setting":"1"}}`},
		"a directory that is gone":                      {content: `{"directories":["/nonexistent/directory"]}`},
		"a file that is cut off":                        {content: `{"sysctls":`, wantError: "machine.json"},
		"a setting that cannot be given the value back": {content: `{"sysctls":{"kernel/ostype":"CP/M"}}`, wantError: "restore kernel setting kernel/ostype to CP/M"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "machine.json")
			if test.content != "-" {
				if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := Restore(t.Context(), file, "trireme")
			if test.wantError == "" && err != nil {
				t.Error(err)
			}
			if test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)) {
				t.Errorf("error %v, want one with %q", err, test.wantError)
			}
		})
	}
}
