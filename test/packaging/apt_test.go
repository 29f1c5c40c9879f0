// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Two apt-get update at a time fail at once: apt does not wait for the lock of its lists.
func TestAptInstallRetriesUpdate(t *testing.T) {
	for name, test := range map[string]struct {
		apt       string
		wantCalls string
		wantError bool
	}{
		"locked once":   {`[ "$1" = install ] || [ -e "$CALLS.locked" ] || { : > "$CALLS.locked"; exit 100; }`, "update\nupdate\ninstall\n", false},
		"always locked": {`exit 100`, "update\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			calls := filepath.Join(folder, "calls")
			script := "#!/bin/sh\necho \"$1\" >> \"$CALLS\"\n" + test.apt
			if err := os.WriteFile(filepath.Join(folder, "apt-get"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			timeout := "120"
			if test.wantError {
				timeout = "0"
			}
			command := exec.Command("../../tools/apt-install", "some-package")
			command.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "CALLS="+calls, "APT_TIMEOUT="+timeout)
			if output, err := command.CombinedOutput(); (err != nil) != test.wantError {
				t.Errorf("%v\n%s", err, output)
			}
			if got, _ := os.ReadFile(calls); string(got) != test.wantCalls {
				t.Errorf("calls of apt-get:\n%s\nwant\n%s", got, test.wantCalls)
			}
		})
	}
}
