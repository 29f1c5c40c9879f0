// SPDX-License-Identifier: Apache-2.0

// Package install tests the chart as users install it: on a fresh local cluster that
// has nothing but a registry, with images that are pulled by digest.
package install

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/testing/localcluster"
)

// programs are the names of the images that are built here, by their keys in the chart's
// values.
var programs = map[string]string{
	"operator": "operator", "server": "server", "agent": "mpi-agent", "initializer": "initializer", "odh": "odh",
}

// isThorough tells whether tests that take long and rarely break run too: make test-all
// has it.
func isThorough() bool { return os.Getenv("THOROUGH") != "" }

// imageFolder is the folder that make images-local writes, seen from the repository's root.
const imageFolder = "bin/images-local"

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

// release has the digests of the chart's images, by their keys in the values.
type release map[string]string

// pushImages builds the images that users of this commit get, for this machine's platform,
// and pushes them to the private registry, with Open MPI for jobs.
func pushImages(t *testing.T) release {
	t.Helper()
	// Not by run: the settings for clients of the registry are not for builds.
	if output, err := localcluster.Shell("make images-local"); err != nil {
		t.Fatalf("make images-local: %v\n%s", err, output)
	}
	images := builtImages(t)
	for part, program := range programs {
		pushed := push(t, fmt.Sprintf("%s/%s.tar", imageFolder, program), program+":1")
		if pushed != images[part] {
			t.Fatalf("the registry has %s with digest %s, but the values have %q", program, pushed, images[part])
		}
	}
	push(t, "openmpi5", "openmpi:5")
	images["test"] = push(t, testImage(), "mpi-test:1")
	return images
}

// builtImages reads the digests from the values that are built with the images.
func builtImages(t *testing.T) release {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(localcluster.Repository, imageFolder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Images map[string]any `json:"images"`
	}
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	images := release{}
	for key, value := range values.Images {
		if image, ok := value.(map[string]any); ok {
			images[key], _ = image["digest"].(string)
		}
	}
	return images
}

// testImage is the name of the image for helm test. The one of a release takes minutes to
// build, and no other test needs it.
func testImage() string {
	if isThorough() {
		return "mpi-test-" + runtime.GOARCH
	}
	return "openmpi5"
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

// newer is the same release with another image of the operator. Its program differs in some
// bytes that are never run.
func (images release) newer(t *testing.T) release {
	t.Helper()
	program := filepath.Join(t.TempDir(), "operator")
	run(t, fmt.Sprintf("make bin/operator && cp bin/operator %s && echo newer >>%s", program, program))
	other := maps.Clone(images)
	other["operator"] = push(t, program, "operator:2")
	return other
}

// values are the arguments of helm for the release. The digests of the other images are in
// the file.
func (images release) values() string {
	return fmt.Sprintf(`--values %s/values.yaml --set images.registry="$PRIVATE_REGISTRY/trireme" --set images.pullSecrets={registry}`+
		" --set images.operator.digest=%s --set images.test.digest=%s", imageFolder, images["operator"], images["test"])
}
