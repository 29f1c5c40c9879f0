// SPDX-License-Identifier: Apache-2.0

// Package e2e tests Trireme as it is installed: on a local cluster of its own,
// through kubectl.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const (
	repository = "../.."
	agentImage = "trireme.local/mpi-agent:dev"
)

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("the tests start a cluster, which needs root")
		os.Exit(1)
	}
	// Not while a job runs that a test is about: it may take as long as the job.
	if err := buildOdh(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(runAll(m))
}

// isThorough tells whether tests that take long and rarely break run too: make
// test-all has it.
func isThorough() bool { return os.Getenv("THOROUGH") != "" }

// runAll leaves nothing behind, whatever the tests did.
func runAll(m *testing.M) int {
	if os.Getenv("E2E_CLUSTER") == "keep" {
		// For who writes tests: the cluster that the environment names is taken as
		// it is, and stays.
		return m.Run()
	}
	for name, value := range map[string]string{
		"TRIREME_CLUSTER_NAME": "trireme-e2e", "TRIREME_CLUSTER_NETWORK": "10.196.0.0/16", "TRIREME_CLUSTER_DATA": "", "TRIREME_CLUSTER_RUN": "",
	} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	defer func() {
		if output, err := shell("bin/cluster reset --images"); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, output)
		}
	}()
	for _, line := range []string{"make bin/cluster", "bin/cluster reset --images", "bin/cluster up", "make install",
		"make bin/mpi-agent", "bin/cluster image load bin/mpi-agent --as " + agentImage, "bin/cluster image mpi"} {
		if output, err := shell(line); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", line, err, output)
			return 1
		}
	}
	return m.Run()
}

// shell runs a line in the repository's folder and returns all that it prints.
func shell(line string) (string, error) {
	command := exec.Command("bash", "-euo", "pipefail", "-c", line)
	command.Dir = repository
	output, err := command.CombinedOutput()
	return string(output), err
}

// kubectl runs kubectl and fails the test if kubectl does.
func kubectl(t *testing.T, arguments string) string {
	t.Helper()
	output, err := shell("bin/cluster kubectl " + arguments)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", arguments, err, output)
	}
	return output
}

// refused runs kubectl and fails the test unless it fails with these words.
func refused(t *testing.T, arguments string, want ...string) {
	t.Helper()
	output, err := shell("bin/cluster kubectl " + arguments)
	if err == nil {
		t.Errorf("kubectl %s was accepted:\n%s", arguments, output)
	}
	for _, text := range want {
		if !strings.Contains(output, text) {
			t.Errorf("kubectl %s does not say %q:\n%s", arguments, text, output)
		}
	}
}

// eventually tries until something holds.
func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
