// SPDX-License-Identifier: Apache-2.0

// Package e2e tests Trireme as it is installed: on a local cluster of its own,
// through kubectl.
package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/localcluster"
)

const (
	repository = localcluster.Repository
	agentImage = "trireme.local/mpi-agent:dev"
)

// isAnyCluster: the tests run on the cluster of KUBECONFIG, with what is installed there
// (make test-kind).
func isAnyCluster() bool { return os.Getenv("TEST_CLUSTER") == "any" }

// needsLocalCluster skips a test on a cluster of others.
func needsLocalCluster(t testing.TB, reason string) {
	t.Helper()
	if isAnyCluster() {
		t.Skip("needs the local cluster: " + reason)
	}
}

// clusterTool runs kubectl for the cluster of the tests.
func clusterTool() string {
	if isAnyCluster() {
		return "test/e2e/any-cluster"
	}
	return "bin/cluster"
}

// testImage is an image with MPI. TEST_IMAGES is the registry and path of these images
// for clusters other than the local one.
func testImage(name string) string {
	if registry := os.Getenv("TEST_IMAGES"); registry != "" {
		return strings.TrimSuffix(registry, "/") + "/" + name
	}
	return "trireme.local/" + name
}

func TestMain(m *testing.M) {
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

// Tests that call t.Parallel wait for pods most of the time, and share the cluster: each
// has namespaces of its own, and changes nothing that another sees. Go runs them when
// all others have ended: those that stop components, change nodes or kinds, measure, or
// count what anybody writes.

func runAll(m *testing.M) int {
	if isAnyCluster() {
		if os.Getenv("KUBECONFIG") == "" {
			fmt.Fprintln(os.Stderr, "KUBECONFIG is not set: it must name the cluster that the tests run on")
			return 1
		}
		if output, err := shell("bin/cluster kubectl get deployment/trireme-operator --namespace trireme-system"); err != nil {
			fmt.Fprintf(os.Stderr, "Trireme is not installed on the cluster of KUBECONFIG (make install): %v\n%s", err, output)
			return 1
		}
		return m.Run()
	}
	name, network := "trireme-e2e", "10.196.0.0/16"
	// The cluster of another release of Kubernetes runs beside that of the default one.
	if release := os.Getenv("TRIREME_KUBERNETES_VERSION"); release != "" {
		name, network = "trireme-e2e"+strings.ReplaceAll(release, ".", ""), "10.189.0.0/16"
	}
	return localcluster.Run(m, name, network,
		"bin/cluster up", "make install", "make bin/mpi-agent", "bin/cluster image load bin/mpi-agent --as "+agentImage, "bin/cluster image mpi")
}

// shell runs a line in the repository's folder and returns all that it prints.
func shell(line string) (string, error) {
	if isAnyCluster() {
		line = strings.ReplaceAll(line, "bin/cluster", clusterTool())
	}
	return localcluster.Shell(line)
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
