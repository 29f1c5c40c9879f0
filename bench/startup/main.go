// SPDX-License-Identifier: Apache-2.0

// The benchmark of MPI's start: the agent against OpenSSH's sshd and ssh, on the
// same hosts, image and keys, in one run. It prints tables and ratios, and needs
// root on one Linux machine.
//
// Hosts are made of namespaces, as pods are: see machine.go. All of it is below
// one process, and ends with it, however that ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// settings are what the flags say.
type settings struct {
	Workers     []int         `json:"workers"`
	Repetitions int           `json:"repetitions"`
	PodRounds   int           `json:"podRounds"`
	Timeout     time.Duration `json:"timeout"`
	Image       string        `json:"image"`
	// Agent is the path of the agent that is measured.
	Agent string `json:"agent"`
	// Directory is where the machine mounts its files.
	Directory string `json:"directory"`
}

func main() {
	var err error
	switch os.Args[0] {
	case machineName:
		err = runMachine()
	case hostName:
		err = runHost(os.Stdin, os.Stdout)
	default:
		err = run()
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	settings, jsonPath, err := parseFlags(os.Args[1:])
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("namespaces are made by root: run it with sudo")
	}
	directory, err := os.MkdirTemp("", "trbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	if settings.Agent, err = buildAgent(ctx, directory); err != nil {
		return err
	}
	settings.Directory = filepath.Join(directory, "machine")
	if err := os.Mkdir(settings.Directory, 0o755); err != nil {
		return err
	}
	results := &results{Settings: settings, LoadBefore: loadAverage()}
	// What was measured before something went wrong is still worth reading.
	err = errors.Join(measureHosts(ctx, settings, results), measurePods(ctx, settings, results))
	results.LoadAfter = loadAverage()
	results.print(os.Stdout)
	if jsonPath != "" {
		err = errors.Join(err, results.writeJSON(jsonPath))
	}
	return err
}

func parseFlags(arguments []string) (settings, string, error) {
	var settings settings
	flags := flag.NewFlagSet("startup", flag.ContinueOnError)
	workers := flags.String("workers", "1,4,16,64", "numbers of workers; empty measures pods only")
	flags.IntVar(&settings.Repetitions, "repetitions", 5, "how often each is measured")
	flags.IntVar(&settings.PodRounds, "pod-rounds", 15, "how often the start of pods is measured; 0 leaves it out")
	flags.DurationVar(&settings.Timeout, "timeout", 5*time.Minute, "how long one mpirun may take")
	flags.StringVar(&settings.Image, "image", "", "archive of an image with Open MPI 4 and OpenSSH (otherwise the local cluster's openmpi:4)")
	jsonPath := flags.String("json", "", "also write everything to this file, as JSON")
	if err := flags.Parse(arguments); err != nil {
		return settings, "", err
	}
	for _, word := range strings.FieldsFunc(*workers, func(r rune) bool { return r == ',' || r == ' ' }) {
		count, err := strconv.Atoi(word)
		if err != nil || count < 1 || count > maxWorkers {
			return settings, "", fmt.Errorf("-workers: %q is not a number from 1 to %d", word, maxWorkers)
		}
		settings.Workers = append(settings.Workers, count)
	}
	if settings.Repetitions < 1 || settings.PodRounds < 0 {
		return settings, "", errors.New("-repetitions must be at least 1, and -pod-rounds not below 0")
	}
	return settings, *jsonPath, nil
}

// buildAgent builds what the working tree holds, as it is delivered.
func buildAgent(ctx context.Context, directory string) (string, error) {
	path := filepath.Join(directory, "mpi-agent")
	command := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "github.com/trireme-mpi/trireme/cmd/mpi-agent")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the agent (run this in the repository): %w\n%s", err, output)
	}
	return path, nil
}

// measureHosts runs the machine and takes over what it has measured.
func measureHosts(ctx context.Context, settings settings, results *results) error {
	if len(settings.Workers) == 0 {
		return nil
	}
	input, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	command := inNamespaces(machineName)
	command.Env = append(os.Environ(), settingsVariable+"="+string(input))
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	// Held open: its end tells the machine that we are gone.
	if _, err := command.StdinPipe(); err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("make namespaces (this needs root with CAP_SYS_ADMIN): %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = command.Process.Kill() })()
	decodeErr := json.NewDecoder(output).Decode(&results.Hosts)
	if err := command.Wait(); err != nil || ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return decodeErr
}

func loadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	fields := strings.Fields(string(content))
	return strings.Join(fields[:min(3, len(fields))], " ")
}
