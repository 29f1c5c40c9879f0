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
	// maxEnvironment is how much environment a session may send.
	maxEnvironment = 1 << 20
	// abandonedPatience is how long a command may go on after its client is gone.
	abandonedPatience = 5 * time.Second
)

// session is one command of a client's.
type session struct {
	worker  *Worker
	channel ssh.Channel

	environment []string
	size        int
	command     *exec.Cmd
}

// session serves one session from its first request to its end.
func (worker *Worker) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	session := &session{worker: worker, channel: channel}
	defer channel.Close()
	ended := make(chan struct{})
	for {
		select {
		case <-ended:
			return
		case request, open := <-requests:
			if !open {
				session.abandoned(ended)
				return
			}
			ok := session.handle(request, ended)
			if request.WantReply {
				_ = request.Reply(ok, nil)
			}
		}
	}
}

// abandoned ends the command of a client that is gone: it would hold memory and
// GPUs for nobody.
func (session *session) abandoned(ended <-chan struct{}) {
	if session.command == nil {
		return
	}
	group := -session.command.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	// Not only until the command itself has ended: its children may refuse.
	for deadline := time.Now().Add(abandonedPatience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if syscall.Kill(group, 0) != nil {
			break
		}
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-ended
}

// maxPipe is fs.pipe-max-size: what a pipe holds at most.
const maxPipe = 1 << 20

func (session *session) handle(request *ssh.Request, ended chan struct{}) bool {
	switch request.Type {
	case "env":
		return session.setVariable(request.Payload)
	case "exec":
		var payload struct{ Command string }
		return ssh.Unmarshal(request.Payload, &payload) == nil && session.run([]string{shell, "-c", payload.Command}, ended)
	case "shell":
		return session.run([]string{shell}, ended)
	case "signal":
		return session.signal(request.Payload)
	default:
		// Terminals, subsystems, forwarding of X11 and of agents.
		return false
	}
}

func (session *session) setVariable(payload []byte) bool {
	var variable struct{ Name, Value string }
	if ssh.Unmarshal(payload, &variable) != nil || variable.Name == "" || strings.ContainsAny(variable.Name, "=\x00") || strings.Contains(variable.Value, "\x00") {
		return false
	}
	session.size += len(payload)
	if session.command != nil || session.size > maxEnvironment {
		return false
	}
	session.environment = append(session.environment, variable.Name+"="+variable.Value)
	return true
}

var signals = map[string]syscall.Signal{
	"ABRT": syscall.SIGABRT, "ALRM": syscall.SIGALRM, "FPE": syscall.SIGFPE, "HUP": syscall.SIGHUP, "ILL": syscall.SIGILL,
	"INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "PIPE": syscall.SIGPIPE, "QUIT": syscall.SIGQUIT, "SEGV": syscall.SIGSEGV,
	"TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
}

func (session *session) signal(payload []byte) bool {
	var message struct{ Name string }
	if ssh.Unmarshal(payload, &message) != nil || session.command == nil {
		return false
	}
	signal, known := signals[message.Name]
	return known && syscall.Kill(-session.command.Process.Pid, signal) == nil
}

// run starts the command; ended is closed when it has ended and the client has
// been told how.
func (session *session) run(arguments []string, ended chan struct{}) bool {
	if session.command != nil {
		return false
	}
	command := exec.Command(arguments[0], arguments[1:]...)
	command.Env = append(containerEnvironment(), session.environment...)
	// A session of its own, so that signals reach all of what it starts.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	output, err := newOutput(command, session.channel)
	if err != nil {
		session.worker.log.Error("make pipes", "error", err)
		return false
	}
	stdin, err := command.StdinPipe()
	if err == nil {
		err = session.worker.processes.start(command)
	}
	output.started()
	if err != nil {
		session.worker.log.Error("start a command", "error", unwrapPath(err))
		output.finish()
		return false
	}
	session.command = command
	go func() {
		_, _ = io.Copy(stdin, session.channel)
		_ = stdin.Close()
	}()
	go func() {
		defer close(ended)
		session.worker.processes.wait(command)
		// The command has ended; a daemon that it left behind may still hold its
		// pipes, and nobody waits for that.
		output.finish()
		session.tellEnd(command.ProcessState)
	}()
	return true
}

// containerEnvironment is the container's, with a home: PMIx crashes where there is
// neither HOME nor an entry in passwd.
func containerEnvironment() []string {
	environment := os.Environ()
	if os.Getenv("HOME") == "" {
		environment = append(environment, "HOME="+os.TempDir())
	}
	return environment
}

// unwrapPath drops the command from an error: it may hold what is secret.
func unwrapPath(err error) error {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

func (session *session) tellEnd(state *os.ProcessState) {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		_, _ = session.channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Name          string
			Core          bool
			Error, Locale string
		}{Name: signalName(status.Signal()), Core: status.CoreDump()}))
		return
	}
	_, _ = session.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(state.ExitCode())}))
}

func signalName(signal syscall.Signal) string {
	for name, known := range signals {
		if known == signal {
			return name
		}
	}
	return "KILL"
}

// output carries what a command prints to the client.
type output struct {
	readers []*os.File
	writers []*os.File
	ended   chan struct{}
	carried sync.WaitGroup
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
		output.carried.Go(func() { output.carry(reader, to.stream) })
	}
	return output, nil
}

// started closes our copies of the ends that the command writes to.
func (output *output) started() {
	for _, writer := range output.writers {
		_ = writer.Close()
	}
}

// finish waits until all that was printed before the end has been carried.
func (output *output) finish() {
	close(output.ended)
	for _, reader := range output.readers {
		// Wakes up whoever waits for more; what is there already is still read.
		_ = reader.SetReadDeadline(time.Now())
	}
	output.carried.Wait()
	for _, reader := range output.readers {
		_ = reader.Close()
	}
}

func (output *output) carry(reader *os.File, to io.Writer) {
	buffer := make([]byte, 32<<10)
	for {
		count, err := reader.Read(buffer)
		if count > 0 {
			if _, err := to.Write(buffer[:count]); err != nil {
				// The client is gone; the command must not block on a full pipe.
				to = io.Discard
			}
		}
		if err != nil {
			break
		}
	}
	select {
	case <-output.ended:
		drain(reader, buffer, to)
	default:
	}
}

// drain reads what is in a pipe without waiting for more.
func drain(reader *os.File, buffer []byte, to io.Writer) {
	_ = reader.SetReadDeadline(time.Time{})
	raw, err := reader.SyscallConn()
	if err != nil {
		return
	}
	// No more than a pipe can hold: what comes after it was printed after the end.
	for left := maxPipe; left > 0; {
		count := 0
		err := raw.Read(func(descriptor uintptr) bool {
			count, _ = syscall.Read(int(descriptor), buffer) // Below 0 if nothing is there.
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
