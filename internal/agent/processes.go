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

// processes are those that the agent has started, and those that were left to
// it: as PID 1 of a container it is the parent of every process whose own
// parent has ended, such as MPI's daemons.
type processes struct {
	mutex   sync.Mutex
	started map[int]bool
}

func newProcesses() *processes { return &processes{started: map[int]bool{}} }

// start starts a command that somebody will wait for.
func (processes *processes) start(command *exec.Cmd) error {
	// Held while the process is born, so that it is known before it can end.
	processes.mutex.Lock()
	defer processes.mutex.Unlock()
	if err := command.Start(); err != nil {
		return err
	}
	processes.started[command.Process.Pid] = true
	return nil
}

// wait waits for a command that start has started.
func (processes *processes) wait(command *exec.Cmd) {
	_ = command.Wait() // How it ended is in its state.
	processes.mutex.Lock()
	defer processes.mutex.Unlock()
	delete(processes.started, command.Process.Pid)
}

// adoptOrphans collects ended processes that nobody waits for, until done.
func (processes *processes) adoptOrphans(done <-chan struct{}) {
	childEnded := make(chan os.Signal, 1)
	signal.Notify(childEnded, syscall.SIGCHLD)
	defer signal.Stop(childEnded)
	// Signals are merged, so a look now and then finds what was missed.
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-done:
			return
		case <-childEnded:
		case <-again.C:
		}
		processes.reap()
	}
}

func (processes *processes) reap() {
	processes.mutex.Lock()
	defer processes.mutex.Unlock()
	for _, process := range processTable() {
		if process.parent == os.Getpid() && process.zombie && !processes.started[process.id] {
			_, _ = syscall.Wait4(process.id, nil, syscall.WNOHANG, nil)
		}
	}
}

// descendants are the processes below the agent. What somebody has started in
// the container from outside is not among them.
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

// endDescendants asks all of them to end, and ends those that have not when the
// time is over. A time of 0 does not ask.
func endDescendants(patience time.Duration) {
	if patience > 0 {
		signalAll(syscall.SIGTERM)
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if len(descendants()) == 0 {
				return
			}
		}
	}
	// More than once: a process may start another between the look and the signal.
	for range killRounds {
		if signalAll(syscall.SIGKILL) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// killRounds bounds the wait for a process that a driver holds.
const killRounds = 100

// signalAll returns how many there were.
func signalAll(signal syscall.Signal) int {
	ids := descendants()
	for _, id := range ids {
		_ = syscall.Kill(id, signal) // It may have ended by itself.
	}
	return len(ids)
}

// stopIgnoringSignals gives children the default for signals that the agent was
// started to ignore, as by nohup: a shell cannot trap them, and they do not end ranks.
// Go leaves just these two ignored; a signal that is caught becomes the default in a
// child. The agent itself still does nothing on them. It is never undone, because
// signal.Reset would have them ignored again.
func stopIgnoringSignals() {
	for _, inherited := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(inherited) {
			signal.Notify(make(chan os.Signal, 1), inherited)
		}
	}
}

// forwardSignals hands on the signals that Kubernetes, mpirun or a person sends to
// the agent, to whatever it stands in for.
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
			continue // It has ended.
		}
		if process, err := parseStat(content); err == nil {
			table = append(table, process)
		}
	}
	return table
}

// parseStat reads "1234 (name) S 1 ...". The name is in parentheses and may hold
// any character.
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
