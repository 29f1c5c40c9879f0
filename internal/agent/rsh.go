// SPDX-License-Identifier: Apache-2.0

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
	// connectExit is the exit code of ssh if it cannot connect.
	connectExit = 255
	// rshDeadline limits the attempts of rsh: the gate has reached the host before.
	rshDeadline = 30 * time.Second
	// keepAlive detects hosts that disappear without closing the connection.
	keepAlive = 5 * time.Second
)

// RSH runs a command on a host, as ssh does, and returns its exit code. mpirun calls it
// once for each host.
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
		records.write(failureRecord(call.host, err))
	}
	return code
}

func (c *call) run(records recordsFile) (int, error) {
	// The user name identifies the launch. The server has no users, so other names do not
	// matter.
	user := "mpi"
	if launch := os.Getenv(launchVariable); launch != "" {
		user = launchUser + launch
	} else if c.user != "" {
		user = c.user
	}
	client, err := newClient(user)
	if err != nil {
		return connectExit, err
	}
	if c.port == 0 {
		c.port = client.port
	}
	client.stopping = func() {
		records.write(record{Host: c.host, Trouble: protocol.Stopped, Message: c.host + " is terminating", At: time.Now()})
	}
	ctx, cancel := context.WithTimeout(context.Background(), rshDeadline)
	defer cancel()
	connection, took, err := client.reach(ctx, c.host, c.port, func() func() { return func() {} })
	if err != nil {
		return connectExit, err
	}
	defer connection.Close()
	records.write(record{Host: c.host, DNS: took.dns, Connect: took.connect, At: time.Now()})
	c.command = callBackByAddress(c.command, connection.LocalAddr())
	lost := make(chan struct{})
	go watch(connection, lost)
	code, err := c.execute(connection, lost)
	if err == nil && (code == exitNotFound || code == exitNotExecutable) {
		records.write(record{Host: c.host, Trouble: protocol.NotStarted, At: time.Now(), Message: fmt.Sprintf(
			"%s could not start the MPI daemon (exit code %d); the workers need the same MPI as the launcher, at the same path", c.host, code)})
	}
	if strings.Contains(c.command, "hydra_") {
		records.write(record{Host: c.host, Ended: true, At: time.Now()})
	}
	return code, err
}

// callBackByAddress makes Hydra's proxy connect to its mpiexec by the address that the
// connection to the host has here. mpiexec passes the name of its pod, which DNS may
// publish only after mpirun has started, and DNS caches negative answers for up to 30 s.
func callBackByAddress(command string, from net.Addr) string {
	address, ok := from.(*net.TCPAddr)
	self, err := os.Hostname()
	if !ok || err != nil || address.IP.To4() == nil {
		return command // Hydra splits HOST:PORT at the first colon.
	}
	return strings.NewReplacer(
		" --control-port "+self+":", " --control-port "+address.IP.String()+":", // MPICH
		" --upstream-host "+self+" ", " --upstream-host "+address.IP.String()+" ", // Intel MPI
	).Replace(command)
}

// watch closes lost when the host stops responding.
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

func (c *call) execute(connection *ssh.Client, lost <-chan struct{}) (int, error) {
	session, err := connection.NewSession()
	if err != nil {
		return connectExit, &connectError{c.host, protocol.Broken, err}
	}
	defer session.Close()
	session.Stdout, session.Stderr = os.Stdout, os.Stderr
	// session.Stdin would keep a finished session open until stdin is closed.
	stdin, err := session.StdinPipe()
	if err != nil {
		return connectExit, &connectError{c.host, protocol.Broken, err}
	}
	go func() {
		_, _ = io.Copy(stdin, os.Stdin)
		_ = stdin.Close()
	}()
	if c.command == "" {
		err = session.Shell()
	} else {
		err = session.Start(c.command)
	}
	if err != nil {
		return connectExit, &connectError{c.host, protocol.Broken, errors.New("it refused to start the command")}
	}
	stop := forwardSignals(func(received syscall.Signal) { _ = session.Signal(ssh.Signal(signalName(received))) })
	defer stop()
	return c.exitCode(session.Wait(), lost)
}

func (c *call) exitCode(err error, lost <-chan struct{}) (int, error) {
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Signal() != "":
		// As shells do for a command that was killed.
		return 128 + int(signals[exit.Signal()]), nil
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	}
	select {
	case <-lost:
		err = errors.New("it stopped responding")
	default:
	}
	return connectExit, &connectError{c.host, protocol.Broken, err}
}

// failureRecord is the record of a host that was not reached, or was lost.
func failureRecord(host string, err error) record {
	entry := record{Host: host, Trouble: protocol.Broken, Message: err.Error(), At: time.Now()}
	var failure *connectError
	if errors.As(err, &failure) {
		entry.Trouble = failure.trouble
		entry.Message = fmt.Sprintf("%s; %s", failure.Error(), advice[failure.trouble])
	}
	entry.Message = strings.ReplaceAll(entry.Message, "\n", " ")
	return entry
}
