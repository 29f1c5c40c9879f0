// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

func TestHostsThatCanBeReached(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	hostfile := mustWrite(t, filepath.Join(t.TempDir(), "hostfile"), "127.0.0.1 slots=2\n127.0.0.2:4\n")
	environment := []string{protocol.HostfileVariable + "=" + hostfile}
	want := outcome{Stdout: "127.0.0.1:2\n127.0.0.2:4\n"}
	if diff := cmp.Diff(want, runAgent(t, worker.keys, worker.port, environment, "hosts")); diff != "" {
		t.Errorf("all are up (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(outcome{}, runAgent(t, worker.keys, freePort(t), environment, "hosts")); diff != "" {
		t.Errorf("none is up (-want +got):\n%s", diff)
	}
}

func TestInstall(t *testing.T) {
	directory := t.TempDir()
	// Twice: the init container may be started again.
	for range 2 {
		if got := runAgent(t, directory, protocol.Port, nil, "install", directory); got.Status != 0 {
			t.Fatalf("install: %+v", got)
		}
	}
	installed := filepath.Join(directory, filepath.Base(protocol.Path))
	info, err := os.Stat(installed)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v: any user must be able to execute it", info.Mode())
	}
	if content, err := os.ReadDir(directory); err != nil || len(content) != 1 {
		t.Errorf("%v, %v", content, err)
	}
}

func TestArgumentsOfModes(t *testing.T) {
	tests := map[string]struct {
		arguments  []string
		wantStatus int
	}{
		"none":                        {wantStatus: 2},
		"help":                        {arguments: []string{"--help"}},
		"a launch without a command":  {arguments: []string{"launch", "--"}, wantStatus: 2},
		"an install without a place":  {arguments: []string{"install"}, wantStatus: 2},
		"an install to nowhere":       {arguments: []string{"install", "/nonexistent"}, wantStatus: 1},
		"hosts without a hostfile":    {arguments: []string{"hosts"}, wantStatus: 1},
		"options and no host for rsh": {arguments: []string{"rsh", "-x"}, wantStatus: 255},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := runAgent(t, t.TempDir(), protocol.Port, []string{protocol.HostfileVariable + "=/nonexistent"}, tc.arguments...)
			if got.Status != tc.wantStatus || got.Stdout+got.Stderr == "" {
				t.Errorf("outcome %+v, want exit code %d and a message", got, tc.wantStatus)
			}
		})
	}
}
