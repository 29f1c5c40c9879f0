// SPDX-License-Identifier: Apache-2.0

package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNPM runs web/npm with other versions of Node. If a version does not fit, Node is
// downloaded: here, the download has a wrong checksum.
func TestNPM(t *testing.T) {
	for version, want := range map[string]string{
		"v18.20.4": "FAILED", "v20.18.3": "FAILED", "v20.19.0": "npm ci", "v21.7.3": "FAILED", "v22.12.0": "FAILED",
		"v22.13.0": "npm ci", "v23.11.0": "FAILED", "v24.0.0": "npm ci", "v25.1.0": "npm ci",
	} {
		t.Run(version, func(t *testing.T) {
			folder := t.TempDir()
			for name, content := range map[string]string{
				"programs/node": "#!/bin/sh\necho " + version,
				"programs/npm": `#!/bin/sh
[ "$1" = pack ] || { echo npm "$@"; exit; }
for package in "$5" "$6"; do echo changed >"$4/$(echo $package | tr @ -).tgz"; done`,
				"programs/uname":  "#!/bin/sh\necho x86_64",
				"web/npm":         read(t, "npm"),
				"web/node.sha512": read(t, "node.sha512"),
			} {
				file := filepath.Join(folder, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			command := exec.Command(filepath.Join(folder, "web/npm"), "ci")
			command.Env = append(os.Environ(), "PATH="+filepath.Join(folder, "programs")+":"+os.Getenv("PATH"))
			output, err := command.CombinedOutput()
			if !strings.Contains(string(output), want) || (err == nil) != (want == "npm ci") {
				t.Errorf("%v: %s\nwant %s", err, output, want)
			}
		})
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
