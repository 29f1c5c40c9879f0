// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// processes are the children of the agent: those that it has started, and orphans. As
// PID 1 of a container it becomes the parent of every process whose parent has exited,
// such as MPI's daemons.
type processes struct {
	mutex   sync.Mutex
	started map[int]bool
}

func newProcesses() *processes { return &processes{started: map[int]bool{}} }

// start starts a command. The caller must call wait.
func (p *processes) start(command *exec.Cmd) error {
	// Locked during the start, so that reap knows the process before it can exit.
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if err := command.Start(); err != nil {
		return err
	}
	p.started[command.Process.Pid] = true
	return nil
}

// wait waits for a command that start has started.
func (p *processes) wait(command *exec.Cmd) {
	_ = command.Wait() // The result is in ProcessState.
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.started, command.Process.Pid)
}

// reapOrphans reaps orphans that have exited, until done.
func (p *processes) reapOrphans(done <-chan struct{}) {
	childEnded := make(chan os.Signal, 1)
	signal.Notify(childEnded, syscall.SIGCHLD)
	defer signal.Stop(childEnded)
	// Signals are merged: the ticker finds processes that were missed.
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-done:
			return
		case <-childEnded:
		case <-again.C:
		}
		p.reap()
	}
}

func (p *processes) reap() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, process := range processTable() {
		if process.parent == os.Getpid() && process.zombie && !p.started[process.id] {
			_, _ = syscall.Wait4(process.id, nil, syscall.WNOHANG, nil)
		}
	}
}

// descendants are the processes below the agent. Processes of kubectl exec are not among
// them.
func descendants() []int {
	table := processTable()
	below := map[int]bool{os.Getpid(): true}
	var found []int
	// A parent may come after its child in the table.
	for grew := true; grew; {
		grew = false
		for _, process := range table {
			if below[process.parent] && !below[process.id] {
				below[process.id], grew = true, true
				if !process.zombie {
					found = append(found, process.id)
				}
			}
		}
	}
	return found
}

// stopDescendants sends SIGTERM to all descendants, and SIGKILL to those that are still
// running after the patience. With a patience of 0 it only sends SIGKILL.
func stopDescendants(patience time.Duration) {
	if patience > 0 {
		signalAll(syscall.SIGTERM)
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if len(descendants()) == 0 {
				return
			}
		}
	}
	// Repeated, because a process may start another one between the list and the signal.
	for range killRounds {
		if signalAll(syscall.SIGKILL) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// killRounds limits the wait for a process that hangs in a driver.
const killRounds = 100

// signalAll signals all descendants and returns their number.
func signalAll(signal syscall.Signal) int {
	ids := descendants()
	for _, id := range ids {
		_ = syscall.Kill(id, signal) // It may have exited already.
	}
	return len(ids)
}

// stopIgnoringSignals restores the default action in children for signals that the agent
// inherited as ignored, for example from nohup: otherwise shells cannot trap them, and
// ranks ignore them. Go leaves just these two ignored; a signal that is caught gets the
// default action in a child. The agent itself still ignores them. It is never undone,
// because signal.Reset would ignore them again.
func stopIgnoringSignals() {
	for _, inherited := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(inherited) {
			signal.Notify(make(chan os.Signal, 1), inherited)
		}
	}
}

// forwardSignals forwards the signals that the agent receives from Kubernetes, mpirun or
// a user.
func forwardSignals(send func(syscall.Signal)) (stop func()) {
	incoming := make(chan os.Signal, 4)
	signal.Notify(incoming, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for received := range incoming {
			send(received.(syscall.Signal))
		}
	}()
	return func() {
		signal.Stop(incoming)
		close(incoming)
	}
}

// process is a line of the process table.
type process struct {
	id, parent int
	zombie     bool
}

func processTable() []process {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	table := make([]process, 0, len(files))
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // It has exited.
		}
		if process, err := parseStat(content); err == nil {
			table = append(table, process)
		}
	}
	return table
}

// parseStat reads "1234 (name) S 1 ...". The name in parentheses may contain any
// character.
func parseStat(content []byte) (process, error) {
	open, end := bytes.IndexByte(content, '('), bytes.LastIndexByte(content, ')')
	if open < 0 || end < open {
		return process{}, fmt.Errorf("no name in %q", content)
	}
	id, err := strconv.Atoi(string(bytes.TrimSpace(content[:open])))
	if err != nil {
		return process{}, err
	}
	fields := bytes.Fields(content[end+1:])
	if len(fields) < 2 {
		return process{}, fmt.Errorf("no parent in %q", content)
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return process{id: id, parent: parent, zombie: fields[0][0] == 'Z'}, err
}
