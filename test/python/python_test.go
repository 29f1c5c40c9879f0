// SPDX-License-Identifier: Apache-2.0

// Package python runs the checks and tests of the Python package (sdk/python). Those that
// need a cluster run on a local cluster of their own.
package python

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"syscall"
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
	if isThorough() {
		t.Run("notebook in a browser", testNotebook)
	}
}

// isThorough tells whether tests that take long and rarely break run too: make test-all
// has it.
func isThorough() bool { return os.Getenv("THOROUGH") != "" }

// TestVersions runs the unit tests with each Python that the package supports and that is
// on this machine.
func TestVersions(t *testing.T) {
	if !isThorough() {
		t.Skip("it takes minutes; make test-all runs it")
	}
	for _, python := range []string{"python3.10", "python3.11", "python3.12", "python3.13"} {
		t.Run(python, func(t *testing.T) {
			if output, err := localcluster.Shell(python + " --version"); err != nil {
				t.Skip(output)
			}
			t.Log(run(t, "PYTHON="+python+" sdk/python/tools/test unit -q"))
		})
	}
	t.Log(run(t, "sdk/python/tools/test types"))
}

// testNotebook runs a function in a cell of JupyterLab, in a real Chromium.
func testNotebook(t *testing.T) {
	run(t, "command -v chromium || tools/apt-install chromium")
	run(t, "make web/node_modules/.package-lock.json && bin/cluster image mpi notebook")
	command := exec.CommandContext(t.Context(), "sdk/python/tools/notebook")
	command.Dir, command.Env = localcluster.Repository, append(os.Environ(), "NOTEBOOK_PORT=0")
	// kubectl, which it starts, would otherwise continue.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	// The context has ended the program before.
	t.Cleanup(func() { _ = command.Wait() })
	var address string
	for lines := bufio.NewScanner(output); address == "" && lines.Scan(); {
		address = regexp.MustCompile(`http://\S+`).FindString(lines.Text())
	}
	if address == "" {
		t.Fatal("tools/notebook printed no address; its messages are above")
	}
	t.Log(run(t, "NOTEBOOK='"+address+"' web/npm run --silent test-notebook"))
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
