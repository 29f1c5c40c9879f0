// SPDX-License-Identifier: Apache-2.0

// Package install tests the chart as users install it: on a fresh local cluster that
// has nothing but a registry, with images that are pulled by digest.
package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/testing/localcluster"
)

// parts are the programs of the chart's images, by the names of the images' values.
var parts = map[string]string{
	"operator": "operator", "server": "server", "agent": "mpi-agent", "initializer": "initializer", "odh": "odh",
}

func TestMain(m *testing.M) {
	os.Exit(localcluster.Run(m, "trireme-chart", "10.192.0.0/16", "make bin/helm", "bin/cluster up", "bin/cluster registry up"))
}

// clients are the settings of kubectl, helm and registry clients for the cluster.
const clients = `eval "$(bin/cluster env)"; eval "$(bin/cluster registry env)"; export PATH="$PWD/bin:$PATH"; `

// run runs a line of kubectl, helm or odh, and fails the test if it fails.
func run(t *testing.T, line string) string {
	t.Helper()
	started := time.Now()
	output, err := localcluster.Shell(clients + line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, output)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Logf("%4.0f s  %.100s", took.Seconds(), line)
	}
	return strings.TrimSpace(output)
}

// release is an image of each part of the chart, by digest.
type release map[string]string

// pushImages builds the programs and pushes them to the private registry, with Open MPI
// for helm test.
func pushImages(t *testing.T) release {
	t.Helper()
	images := release{"test": push(t, "openmpi5", "mpi-test:1")}
	for part, program := range parts {
		run(t, "make bin/"+program)
		images[part] = push(t, "bin/"+program, program+":1")
	}
	return images
}

// push returns the digest.
func push(t *testing.T, source, name string) string {
	t.Helper()
	output := run(t, fmt.Sprintf(`bin/cluster registry push %s "$PRIVATE_REGISTRY/trireme/%s"`, source, name))
	_, digest, found := strings.Cut(output[strings.LastIndexByte(output, '\n')+1:], "@")
	if !found {
		t.Fatalf("push of %s printed %s", source, output)
	}
	return digest
}

// newer is the same release with an operator that differs in its bytes only.
func (images release) newer(t *testing.T) release {
	t.Helper()
	program := filepath.Join(t.TempDir(), "operator")
	run(t, fmt.Sprintf("cp bin/operator %s && echo newer >>%s", program, program))
	other := release{}
	for part, digest := range images {
		other[part] = digest
	}
	other["operator"] = push(t, program, "operator:2")
	return other
}

// values are the arguments of helm for the release.
func (images release) values() string {
	settings := `--set images.registry="$PRIVATE_REGISTRY/trireme" --set images.pullSecrets={registry}`
	for part, digest := range images {
		settings += fmt.Sprintf(" --set images.%s.digest=%s", part, digest)
	}
	return settings
}
