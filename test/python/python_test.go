// SPDX-License-Identifier: Apache-2.0

// Package python runs the checks and tests of the Python package (sdk/python). Those that
// need a cluster run on a local cluster of their own.
package python

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/localcluster"
)

func TestChecks(t *testing.T) { t.Log(run(t, "sdk/python/tools/test checks")) }

func TestUnit(t *testing.T) { t.Log(run(t, "sdk/python/tools/test unit -q")) }

// noImage is the exit code of sdk/python/tests/images.py if no image has this Python.
const noImage = 3

// TestOnCluster runs functions on the ranks of real jobs. The images have the Pythons of
// Debian 12 and 13, one of which this machine must have, too.
func TestOnCluster(t *testing.T) {
	if os.Geteuid() != 0 && !localcluster.IsKept() {
		t.Skip("the test starts a cluster, which needs root")
	}
	output, err := localcluster.Shell("sdk/python/tools/test has-image")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == noImage {
		t.Skip(output)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	stop, err := localcluster.Start("trireme-python", "10.188.0.0/16", "bin/cluster up", "bin/cluster image mpi openmpi4 openmpi5", "make install")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	t.Log(run(t, `eval "$(bin/cluster env)"; sdk/python/tools/test cluster -q`))
}

// run runs a line in the repository's folder, and fails the test if it fails.
func run(t *testing.T, line string) string {
	t.Helper()
	output, err := localcluster.Shell(line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, output)
	}
	return output
}
