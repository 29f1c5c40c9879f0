// SPDX-License-Identifier: Apache-2.0

// Package python runs the checks and tests of the Python package (sdk/python). Those that
// need a cluster run on a local cluster of their own.
package python

import (
	"os"
	"os/exec"
	"testing"
)

const repository = "../.."

func TestChecks(t *testing.T) { t.Log(run(t, "sdk/python/tools/test checks")) }

func TestUnit(t *testing.T) { t.Log(run(t, "sdk/python/tools/test unit -q")) }

// TestOnCluster runs functions on the ranks of real jobs. The images have the Pythons of
// Debian 12 and 13, one of which this machine must have, too.
func TestOnCluster(t *testing.T) {
	if os.Getenv("E2E_CLUSTER") != "keep" {
		startCluster(t)
	}
	t.Log(run(t, `eval "$(bin/cluster env)"; sdk/python/tools/test cluster -q`))
}

func startCluster(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the test starts a cluster, which needs root")
	}
	t.Setenv("TRIREME_CLUSTER_NAME", "trireme-python")
	t.Setenv("TRIREME_CLUSTER_NETWORK", "10.188.0.0/16")
	t.Setenv("TRIREME_CLUSTER_DATA", "")
	t.Setenv("TRIREME_CLUSTER_RUN", "")
	t.Cleanup(func() { run(t, "bin/cluster reset --images") })
	for _, line := range []string{
		"make bin/cluster bin/helm", "bin/cluster reset --images", "bin/cluster up", "bin/cluster image mpi openmpi4 openmpi5", "make install",
	} {
		run(t, line)
	}
}

// run runs a line in the repository's folder, and fails the test if it fails.
func run(t *testing.T, line string) string {
	t.Helper()
	command := exec.Command("bash", "-euo", "pipefail", "-c", line)
	command.Dir = repository
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, output)
	}
	return string(output)
}
