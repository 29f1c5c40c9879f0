package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

const (
	// connectExit is what ssh itself exits with when it does not get through.
	connectExit = 255
	// rshDeadline is how long rsh tries: the gate has passed, so the host was
	// there a moment ago.
	rshDeadline = 30 * time.Second
	// keepAlive finds out about a host that is gone without a word.
	keepAlive = 5 * time.Second
)

// RSH runs a command on a host, as ssh does, and returns its exit code. It is
// what mpirun calls once for each host.
func RSH(arguments []string) int {
	call, err := parseCall(arguments)
	if err != nil {
		fmt.Fprintf(os.Stderr, "trireme: %v\n", err)
		return connectExit
	}
	records := recordsFile(os.Getenv(recordsVariable))
	code, err := call.run(records)
	if err != nil {
		fmt.Fprintf(os.Stderr, "trireme: %v\n", err)
		records.write(failed(call.host, err))
	}
	return code
}

func (call *call) run(records recordsFile) (int, error) {
	// The job's own logins belong to one launch; a user that mpirun or a person
	// names means nothing to a server without users.
	user := "mpi"
	if launch := os.Getenv(launchVariable); launch != "" {
		user = launchUser + launch
	} else if call.user != "" {
		user = call.user
	}
	client, err := newClient(user)
	if err != nil {
		return connectExit, err
	}
	if call.port == 0 {
		call.port = client.port
	}
	client.stopping = func() {
		records.write(record{Host: call.host, Trouble: protocol.Stopped, Message: call.host + " was told to end", At: time.Now()})
	}
	ctx, cancel := context.WithTimeout(context.Background(), rshDeadline)
	defer cancel()
	connection, took, err := client.reach(ctx, call.host, call.port, func() func() { return func() {} })
	if err != nil {
		return connectExit, err
	}
	defer connection.Close()
	records.write(record{Host: call.host, DNS: took.dns, Connect: took.connect, At: time.Now()})
	call.command = callBackByAddress(call.command, connection.LocalAddr())
	lost := make(chan struct{})
	go watch(connection, lost)
	code, err := call.execute(connection, lost)
	if err == nil && (code == exitNotFound || code == exitNotExecutable) {
		records.write(record{Host: call.host, Trouble: protocol.NotStarted, At: time.Now(), Message: fmt.Sprintf(
			"%s could not start its part of MPI (exit code %d); the workers need the same MPI as the launcher, at the same path", call.host, code)})
	}
	if strings.Contains(call.command, "hydra_") {
		records.write(record{Host: call.host, Ended: true, At: time.Now()})
	}
	return code, err
}

// callBackByAddress has Hydra's proxy call its mpiexec back at the address that the
// host was reached from. mpiexec gives its pod's name, which the cluster's DNS
// publishes only after the pod has started, often after mpirun itself; and an answer
// that comes too early is remembered for up to 30 s.
func callBackByAddress(command string, from net.Addr) string {
	address, ok := from.(*net.TCPAddr)
	self, err := os.Hostname()
	if !ok || err != nil || address.IP.To4() == nil {
		return command // Hydra takes HOST:PORT apart at the first colon.
	}
	return strings.NewReplacer(
		" --control-port "+self+":", " --control-port "+address.IP.String()+":", // MPICH
		" --upstream-host "+self+" ", " --upstream-host "+address.IP.String()+" ", // Intel MPI
	).Replace(command)
}

// watch closes lost when the host stops answering.
func watch(connection *ssh.Client, lost chan<- struct{}) {
	for {
		time.Sleep(keepAlive)
		answered := make(chan error, 1)
		go func() {
			_, _, err := connection.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		select {
		case err := <-answered:
			if err == nil {
				continue
			}
		case <-time.After(3 * keepAlive):
		}
		close(lost)
		_ = connection.Close()
		return
	}
}

func (call *call) execute(connection *ssh.Client, lost <-chan struct{}) (int, error) {
	session, err := connection.NewSession()
	if err != nil {
		return connectExit, &connectError{call.host, protocol.Broken, err}
	}
	defer session.Close()
	session.Stdout, session.Stderr = os.Stdout, os.Stderr
	// Not session.Stdin: waiting for its end would keep a finished session open.
	stdin, err := session.StdinPipe()
	if err != nil {
		return connectExit, &connectError{call.host, protocol.Broken, err}
	}
	go func() {
		_, _ = io.Copy(stdin, os.Stdin)
		_ = stdin.Close()
	}()
	if call.command == "" {
		err = session.Shell()
	} else {
		err = session.Start(call.command)
	}
	if err != nil {
		return connectExit, &connectError{call.host, protocol.Broken, errors.New("it does not start the command")}
	}
	stop := forwardSignals(func(received syscall.Signal) { _ = session.Signal(ssh.Signal(signalName(received))) })
	defer stop()
	return call.exitCode(session.Wait(), lost)
}

func (call *call) exitCode(err error, lost <-chan struct{}) (int, error) {
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Signal() != "":
		// As a shell reports a command that was killed.
		return 128 + int(signals[exit.Signal()]), nil
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	}
	select {
	case <-lost:
		err = errors.New("it no longer answers")
	default:
	}
	return connectExit, &connectError{call.host, protocol.Broken, err}
}

// failed is the record of a host that was not reached, or was lost.
func failed(host string, err error) record {
	entry := record{Host: host, Trouble: protocol.Broken, Message: err.Error(), At: time.Now()}
	var failure *connectError
	if errors.As(err, &failure) {
		entry.Trouble = failure.trouble
		entry.Message = fmt.Sprintf("%s; %s", failure.Error(), advice[failure.trouble])
	}
	entry.Message = strings.ReplaceAll(entry.Message, "\n", " ")
	return entry
}
