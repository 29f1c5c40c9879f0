// SPDX-License-Identifier: Apache-2.0

// Package localcluster starts a local cluster for the tests of a package, and deletes it
// after them. It is used by packages two folders below the repository's root.
package localcluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Repository is the root of the repository, seen from the folder of a package of tests.
const Repository = "../.."

// Run starts a cluster as Start does, runs the tests, and leaves nothing behind, whatever
// they did.
func Run(m *testing.M, name, network string, lines ...string) int {
	stop, err := Start(name, network, lines...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return m.Run()
}

// Start makes a cluster with this name and network the one of all programs that the tests
// run, and runs the lines of shell, which start it. With TEST_CLUSTER=keep, it does nothing:
// the tests then use the cluster that the environment names, which stays as it is.
func Start(name, network string, lines ...string) (stop func(), err error) {
	if IsKept() {
		return func() {}, nil
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the tests start a cluster, which needs root")
	}
	unlock, err := lock(name)
	if err != nil {
		return nil, err
	}
	for variable, value := range map[string]string{
		"TRIREME_CLUSTER_NAME": name, "TRIREME_CLUSTER_NETWORK": network, "TRIREME_CLUSTER_DATA": "", "TRIREME_CLUSTER_RUN": "",
	} {
		if err := os.Setenv(variable, value); err != nil {
			return nil, err
		}
	}
	for _, line := range append([]string{"make bin/cluster", "bin/cluster reset --images"}, lines...) {
		if output, err := Shell(line); err != nil {
			stopCluster()
			unlock()
			return nil, fmt.Errorf("%s: %w\n%s", line, err, output)
		}
	}
	return func() {
		stopCluster()
		unlock()
	}, nil
}

// lock waits while tests of another checkout use the cluster of this name: they would
// delete each other's. The kernel releases the lock of a process that is killed.
func lock(name string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		fmt.Fprintf(os.Stderr, "waiting for the tests of another checkout, which use the cluster %s\n", name)
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
		}
	}
	return func() { _ = file.Close() }, nil
}

func stopCluster() {
	if output, err := Shell("bin/cluster reset --images"); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, output)
	}
}

// IsKept tells whether the tests run on a cluster that was there before them.
func IsKept() bool { return os.Getenv("TEST_CLUSTER") == "keep" }

// Shell runs a line in the repository's folder and returns all that it prints.
func Shell(line string) (string, error) {
	command := exec.Command("bash", "-euo", "pipefail", "-c", line)
	command.Dir = Repository
	output, err := command.CombinedOutput()
	return string(output), err
}
