// SPDX-License-Identifier: Apache-2.0

// Package peers tests Trireme beside the programs that it is made to work with:
// the real Kueue, scheduler-plugins and Volcano, each built from its Go module
// and installed by its own manifests, on a local cluster of the tests' own. Its
// nodes are simulated, so that pods of any size run and cost nothing.
package peers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/testing/localcluster"
)

const repository = localcluster.Repository

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

// runAll leaves nothing behind, whatever the tests did.
func runAll(m *testing.M) int {
	stop, err := localcluster.Start("trireme-peers", "10.193.0.0/16")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// prepare builds what is missing and starts everything. The job APIs are there
// before Kueue, which at its start looks for the kinds that it may queue; the
// operator comes after the schedulers, which it looks for.
func prepare() error {
	for _, peer := range peers {
		if err := timed("build "+peer.name, peer.build); err != nil {
			return err
		}
	}
	start := []string{
		fmt.Sprintf("bin/cluster up --fake-nodes %d --fake-node-gpus 0", simulatedNodes), "bin/cluster kubectl apply --server-side -f charts/trireme/crds"}
	if err := timed("start the cluster", lines(start)); err != nil {
		return err
	}
	for _, peer := range peers {
		if err := timed("install "+peer.name, peer.install); err != nil {
			return err
		}
	}
	return timed("install Trireme", lines(installTrireme))
}

// timed does a step and prints how long it took, for those who wait.
func timed(what string, step func() error) error {
	begin := time.Now()
	err := step()
	fmt.Printf("%6.1fs  %s\n", time.Since(begin).Seconds(), what)
	return err
}

// lines is the step that runs shell lines one after the other.
func lines(all []string) func() error {
	return func() error {
		for _, line := range all {
			if _, err := shell(line); err != nil {
				return err
			}
		}
		return nil
	}
}

// shell runs a line in the repository's folder and returns what it prints; an
// error has what it complained of too.
func shell(line string) (string, error) {
	command := exec.Command("bash", "-euo", "pipefail", "-c", line)
	command.Dir = repository
	output, err := command.Output()
	if err == nil {
		return string(output), nil
	}
	var complaint *exec.ExitError
	if errors.As(err, &complaint) {
		output = append(output, complaint.Stderr...)
	}
	return "", fmt.Errorf("%s: %w\n%s", line, err, output)
}
