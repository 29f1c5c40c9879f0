// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A process is a controller's program, as its image runs it.
type process struct {
	name    string
	command *exec.Cmd
	log     string
	ended   chan error
}

// startProcess runs a program whose words go to a file.
func startProcess(directory, name, path string, environment []string, arguments ...string) (*process, error) {
	log, err := os.Create(filepath.Join(directory, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	started := &process{name: name, command: exec.Command(path, arguments...), log: log.Name(), ended: make(chan error, 1)}
	started.command.Env = append(os.Environ(), environment...)
	started.command.Stdout, started.command.Stderr = log, log
	// Ctrl-C is for the benchmark, which ends the others.
	started.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := started.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { started.ended <- started.command.Wait() }()
	return started, nil
}

// stop ends a process that has nothing left to do.
func (process *process) stop() {
	_ = process.command.Process.Kill()
	<-process.ended
}

// untilReady asks for a page until it is there.
func (process *process) untilReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll(ctx, 50*time.Millisecond, func() error {
		if len(process.ended) > 0 {
			return fatal{fmt.Errorf("%s ended: %s", process.name, process.lastWords())}
		}
		response, err := http.Get(url)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, response.Status)
		}
		return nil
	})
}

func (process *process) lastWords() string {
	content, _ := os.ReadFile(process.log)
	return string(content[max(0, len(content)-2000):])
}

// usage is what a process has used so far.
type usage struct {
	cpu          float64 // seconds
	memory, peak float64 // MiB
}

// ticksPerSecond is the unit of times in /proc, on every Linux that Go knows.
const ticksPerSecond = 100

func (process *process) folder() string { return fmt.Sprintf("/proc/%d", process.command.Process.Pid) }

func (process *process) usage() (usage, error) {
	var found usage
	var err error
	if _, found.cpu, err = readStat(process.folder()); err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(process.folder() + "/status")
	if err != nil {
		return usage{}, err
	}
	found.memory, found.peak = mebibytes(status, "VmRSS:"), mebibytes(status, "VmHWM:")
	return found, nil
}

// readStat tells of a process who started it, and the seconds of CPU that it has used.
func readStat(folder string) (parent int, cpu float64, err error) {
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The name, in brackets, may have blanks in it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if parent, err = strconv.Atoi(fields[1]); err != nil {
		return 0, 0, err
	}
	for _, field := range fields[11:13] { // user and system time
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, 0, err
		}
		cpu += ticks / ticksPerSecond
	}
	return parent, cpu, nil
}

// mebibytes reads a line of /proc/PID/status, which counts in kibibytes.
func mebibytes(status []byte, name string) float64 {
	_, rest, _ := strings.Cut(string(status), name)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	value, _ := strconv.ParseFloat(fields[0], 64)
	return value / 1024
}

// freePort is a port of this machine that nobody listens on.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// A fatal error is one that asking again does not mend.
type fatal struct{ error }

// poll asks until there is no error, or until the time is over.
func poll(ctx context.Context, pause time.Duration, holds func() error) error {
	for {
		err := holds()
		if _, hopeless := errors.AsType[fatal](err); err == nil || hopeless {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}
