// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// Names that this program calls itself by when it starts itself again.
const (
	machineName      = "trbench-machine"
	hostName         = "trbench-host"
	settingsVariable = "TRBENCH_SETTINGS"
)

// inNamespaces is this program again, alone in namespaces of its own. All
// processes, mounts and network devices that it makes go when it ends.
func inNamespaces(name string) *exec.Cmd {
	command := exec.Command("/proc/self/exe")
	command.Args = []string{name}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		// Ctrl-C is for the first of us, which ends the others. And the kernel shares
		// processors between sessions, where it shares them between pods in a cluster.
		Setsid: true,
	}
	return command
}

// runMachine is the machine that the hosts are on: it has the bridge, the image's
// files, and measures.
func runMachine() error {
	var settings settings
	if err := json.Unmarshal([]byte(os.Getenv(settingsVariable)), &settings); err != nil {
		return fmt.Errorf("%s: %w", settingsVariable, err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // Whoever wanted the numbers is gone.
	}()
	if err := privateMounts(); err != nil {
		return err
	}
	// In memory, so that no disk is measured and nothing has to be removed.
	if err := syscall.Mount("tmpfs", settings.Directory, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", settings.Directory, err)
	}
	return json.NewEncoder(os.Stdout).Encode(measureAll(settings))
}

// privateMounts keeps what is mounted here from the rest of the system.
func privateMounts() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// measureAll: what fails is said in the results, beside what did not.
func measureAll(settings settings) hostResults {
	var results hostResults
	fail := func(err error) hostResults {
		results.Error = err.Error()
		return results
	}
	progress("unpack the image")
	root := filepath.Join(settings.Directory, "image")
	if err := prepareRoot(root, settings); err != nil {
		return fail(err)
	}
	progress("make %d hosts", slices.Max(settings.Workers)+1)
	network, err := newNetwork(settings.Directory, root, slices.Max(settings.Workers))
	if err != nil {
		return fail(err)
	}
	var failures []error
	for _, count := range settings.Workers {
		bench := &bench{settings: settings, launcher: network.launcher, workers: network.workers[:count]}
		row, err := bench.measureConnect()
		results.Connect, failures = append(results.Connect, row), append(failures, err)
		row, err = bench.measureWhole()
		results.Whole, failures = append(results.Whole, row), append(failures, err)
	}
	if err := errors.Join(failures...); err != nil {
		return fail(err)
	}
	return results
}

func progress(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
}
