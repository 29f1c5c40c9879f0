// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	shell = "/bin/sh"
	// maxEnvironment limits the size of the environment that a session may send.
	maxEnvironment = 1 << 20
	// abandonedPatience is how long a command may run after its client has disconnected.
	abandonedPatience = 5 * time.Second
)

// session is one command of a client.
type session struct {
	worker  *Worker
	channel ssh.Channel

	environment []string
	size        int
	command     *exec.Cmd
}

// session serves one session from its first request to its end.
func (w *Worker) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	session := &session{worker: w, channel: channel}
	defer channel.Close()
	ended := make(chan struct{})
	for {
		select {
		case <-ended:
			return
		case request, open := <-requests:
			if !open {
				session.stopAbandoned(ended)
				return
			}
			ok := session.handle(request, ended)
			if request.WantReply {
				_ = request.Reply(ok, nil)
			}
		}
	}
}

// stopAbandoned stops the command of a client that has disconnected: it would keep memory
// and GPUs for nothing.
func (s *session) stopAbandoned(ended <-chan struct{}) {
	if s.command == nil {
		return
	}
	group := -s.command.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	// Wait for the whole process group: children may outlive the command.
	for deadline := time.Now().Add(abandonedPatience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if syscall.Kill(group, 0) != nil {
			break
		}
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-ended
}

// maxPipe is fs.pipe-max-size, the maximum capacity of a pipe.
const maxPipe = 1 << 20

func (s *session) handle(request *ssh.Request, ended chan struct{}) bool {
	switch request.Type {
	case "env":
		return s.setVariable(request.Payload)
	case "exec":
		var payload struct{ Command string }
		return ssh.Unmarshal(request.Payload, &payload) == nil && s.run([]string{shell, "-c", payload.Command}, ended)
	case "shell":
		return s.run([]string{shell}, ended)
	case "signal":
		return s.signal(request.Payload)
	default:
		// Terminals, subsystems, X11 and agent forwarding.
		return false
	}
}

func (s *session) setVariable(payload []byte) bool {
	var variable struct{ Name, Value string }
	if ssh.Unmarshal(payload, &variable) != nil || variable.Name == "" || strings.ContainsAny(variable.Name, "=\x00") || strings.Contains(variable.Value, "\x00") {
		return false
	}
	s.size += len(payload)
	if s.command != nil || s.size > maxEnvironment {
		return false
	}
	s.environment = append(s.environment, variable.Name+"="+variable.Value)
	return true
}

var signals = map[string]syscall.Signal{
	"ABRT": syscall.SIGABRT, "ALRM": syscall.SIGALRM, "FPE": syscall.SIGFPE, "HUP": syscall.SIGHUP, "ILL": syscall.SIGILL,
	"INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "PIPE": syscall.SIGPIPE, "QUIT": syscall.SIGQUIT, "SEGV": syscall.SIGSEGV,
	"TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
}

func (s *session) signal(payload []byte) bool {
	var message struct{ Name string }
	if ssh.Unmarshal(payload, &message) != nil || s.command == nil {
		return false
	}
	signal, known := signals[message.Name]
	return known && syscall.Kill(-s.command.Process.Pid, signal) == nil
}

// run starts the command. ended is closed when the command has exited and its exit status
// was sent.
func (s *session) run(arguments []string, ended chan struct{}) bool {
	if s.command != nil {
		return false
	}
	command := exec.Command(arguments[0], arguments[1:]...)
	command.Env = append(containerEnvironment(), s.environment...)
	// In its own session, so that signals reach all its processes.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	output, err := newOutput(command, s.channel)
	if err != nil {
		s.worker.log.Error("create pipes", "error", err)
		return false
	}
	stdin, err := command.StdinPipe()
	if err == nil {
		err = s.worker.processes.start(command)
	}
	output.started()
	if err != nil {
		s.worker.log.Error("start a command", "error", unwrapPath(err))
		output.finish()
		return false
	}
	s.command = command
	go func() {
		_, _ = io.Copy(stdin, s.channel)
		_ = stdin.Close()
	}()
	go func() {
		defer close(ended)
		s.worker.processes.wait(command)
		// A daemon that the command started may still hold the pipes: do not wait for it.
		output.finish()
		s.sendExit(command.ProcessState)
	}()
	return true
}

// containerEnvironment is the container's, with HOME: PMIx crashes if there is neither
// HOME nor an entry in passwd.
func containerEnvironment() []string {
	environment := os.Environ()
	if os.Getenv("HOME") == "" {
		environment = append(environment, "HOME="+os.TempDir())
	}
	return environment
}

// unwrapPath drops the command from an error: it may contain secrets.
func unwrapPath(err error) error {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

func (s *session) sendExit(state *os.ProcessState) {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		_, _ = s.channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Name          string
			Core          bool
			Error, Locale string
		}{Name: signalName(status.Signal()), Core: status.CoreDump()}))
		return
	}
	_, _ = s.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(state.ExitCode())}))
}

func signalName(signal syscall.Signal) string {
	for name, known := range signals {
		if known == signal {
			return name
		}
	}
	return "KILL"
}

// output copies the output of a command to the client.
type output struct {
	readers []*os.File
	writers []*os.File
	ended   chan struct{}
	copies  sync.WaitGroup
}

func newOutput(command *exec.Cmd, channel ssh.Channel) (*output, error) {
	output := &output{ended: make(chan struct{})}
	for _, to := range []struct {
		field  *io.Writer
		stream io.Writer
	}{{&command.Stdout, channel}, {&command.Stderr, channel.Stderr()}} {
		reader, writer, err := os.Pipe()
		if err != nil {
			output.started()
			output.finish()
			return nil, err
		}
		*to.field = writer
		output.readers, output.writers = append(output.readers, reader), append(output.writers, writer)
		output.copies.Go(func() { output.copy(reader, to.stream) })
	}
	return output, nil
}

// started closes the agent's copies of the write ends.
func (o *output) started() {
	for _, writer := range o.writers {
		_ = writer.Close()
	}
}

// finish waits until all output that was written before the exit is copied.
func (o *output) finish() {
	close(o.ended)
	for _, reader := range o.readers {
		// This interrupts readers that wait. drain reads the remaining output.
		_ = reader.SetReadDeadline(time.Now())
	}
	o.copies.Wait()
	for _, reader := range o.readers {
		_ = reader.Close()
	}
}

func (o *output) copy(reader *os.File, to io.Writer) {
	buffer := make([]byte, 32<<10)
	for {
		count, err := reader.Read(buffer)
		if count > 0 {
			if _, err := to.Write(buffer[:count]); err != nil {
				// The client has disconnected. The command must not block on a full pipe.
				to = io.Discard
			}
		}
		if err != nil {
			break
		}
	}
	select {
	case <-o.ended:
		drain(reader, buffer, to)
	default:
	}
}

// drain reads the content of a pipe without waiting for more.
func drain(reader *os.File, buffer []byte, to io.Writer) {
	_ = reader.SetReadDeadline(time.Time{})
	raw, err := reader.SyscallConn()
	if err != nil {
		return
	}
	// At most the capacity of a pipe: what follows was written after the exit.
	for left := maxPipe; left > 0; {
		count := 0
		err := raw.Read(func(descriptor uintptr) bool {
			count, _ = syscall.Read(int(descriptor), buffer) // -1 if the pipe is empty
			return true
		})
		if err != nil || count <= 0 {
			return
		}
		left -= count
		if _, err := to.Write(buffer[:count]); err != nil {
			return
		}
	}
}
