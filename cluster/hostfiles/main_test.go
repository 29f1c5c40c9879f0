// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const container = `{"ociVersion":"1.2.0","annotations":{"io.kubernetes.cri.image-name":%q},"linux":{"x":[1,2]},` +
	`"mounts":[{"destination":"/proc","type":"proc","source":"proc"}]}`

func TestOnlyContainersOfTheImageGetMounts(t *testing.T) {
	images := map[string][]string{"host:1": {"/usr", "/opt/torch"}}
	tests := map[string]struct {
		config string
		want   []string
	}{
		"a container of the image":   {config: fmt.Sprintf(container, "host:1"), want: []string{"/usr", "/opt/torch", "/proc"}},
		"another image":              {config: fmt.Sprintf(container, "openmpi:4")},
		"a pod's sandbox":            {config: `{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`},
		"no annotations":             {config: `{"ociVersion":"1.2.0"}`},
		"a container without mounts": {config: `{"annotations":{"io.kubernetes.cri.image-name":"host:1"}}`, want: []string{"/usr", "/opt/torch"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			changed, err := withMounts([]byte(test.config), images)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Mounts []mount        `json:"mounts"`
				Linux  map[string]any `json:"linux"`
			}
			if len(changed) > 0 {
				if err := json.Unmarshal(changed, &got); err != nil {
					t.Fatal(err)
				}
			}
			var destinations []string
			for _, one := range got.Mounts {
				destinations = append(destinations, one.Destination)
				if one.Destination != "/proc" && !strings.Contains(strings.Join(one.Options, " "), "rro") {
					t.Errorf("%s is not read-only: %v", one.Destination, one.Options)
				}
			}
			if diff := cmp.Diff(test.want, destinations); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
			if strings.Contains(test.config, "linux") && len(changed) > 0 && got.Linux == nil {
				t.Error("another field is lost")
			}
		})
	}
}

func TestHooksOfTheDriverAreDropped(t *testing.T) {
	const config = `{"annotations":{"io.kubernetes.cri.image-name":"host:1"},"hooks":{"createContainer":[` +
		`{"path":"/data/bin/nvidia-cdi-hook","args":["nvidia-cdi-hook","create-symlinks"]},{"path":"/bin/other","args":["other"]}]}}`
	changed, err := withMounts([]byte(config), map[string][]string{"host:1": {"/usr"}})
	if err != nil || strings.Contains(string(changed), "create-symlinks") || !strings.Contains(string(changed), `{"path":"/bin/other","args":["other"]}`) {
		t.Errorf("the configuration is %s (%v)", changed, err)
	}
}

// As containerd's shim calls it: by the absolute path of a link.
func TestItRunsRunc(t *testing.T) {
	data := t.TempDir()
	program, runc := filepath.Join(data, "bin", "runc-with-host-files"), filepath.Join(data, "runc")
	for _, folder := range []string{"bin", "containerd", "bundle"} {
		if err := os.Mkdir(filepath.Join(data, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if output, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	files := map[string]string{
		runc: "#!/bin/sh\necho \"$@\"\nexit 3\n",
		filepath.Join(data, "containerd", "host-files.json"): fmt.Sprintf(`{"runc":%q,"images":{"host:1":["/usr"]}}`, runc),
		filepath.Join(data, "bundle", "config.json"):         fmt.Sprintf(container, "host:1"),
	}
	for path, content := range files {
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, arguments := range []string{"--root /run/x create --bundle " + filepath.Join(data, "bundle") + " name", "state name"} {
		command := exec.Command(program, strings.Fields(arguments)...)
		output, _ := command.CombinedOutput()
		if string(output) != arguments+"\n" || command.ProcessState.ExitCode() != 3 {
			t.Errorf("%s: exit code %d, runc got %q", arguments, command.ProcessState.ExitCode(), output)
		}
	}
	changed, err := os.ReadFile(filepath.Join(data, "bundle", "config.json"))
	if err != nil || !strings.Contains(string(changed), `"destination":"/usr"`) {
		t.Errorf("the container's configuration is %s (%v)", changed, err)
	}
}
