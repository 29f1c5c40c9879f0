// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// Requests of a launcher that checks the ports between its hosts. They need a login with
// the job's key, and run no command.
const (
	openPortRequest  = "open-port@trireme"
	callPortsRequest = "call-ports@trireme"
)

const (
	// openPortPatience is how long a port stays open without callers.
	openPortPatience = 2 * attemptTimeout
	// hangUpPatience is for networks that do not forward the end of a connection.
	hangUpPatience = time.Second
	// maxCalls is how many ports one request may call: the next host and the launcher.
	maxCalls = 2
)

// challenge is what a caller sends and what it must receive. Both are random, so that no
// other program that listens on the port passes the check.
type challenge struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// portRequest asks a host to listen on one of the ports that MPI will use.
type portRequest struct {
	challenge
	// Ranges that MPI may use; if empty, the system chooses.
	Ranges mpi.PortRanges `json:"ranges,omitempty"`
	// Callers is the number of expected callers.
	Callers int32 `json:"callers"`
}

// openedPort is the response: a port, or why there is none.
type openedPort struct {
	Port   int            `json:"port,omitempty"`
	Ranges mpi.PortRanges `json:"ranges,omitempty"`
	Cause  string         `json:"cause,omitempty"`
}

// callRequest asks a host to connect to others, by address and port.
type callRequest struct {
	challenge
	Addresses []string `json:"addresses"`
}

// callResults are in the order of the addresses: the cause of each failure, or nothing.
type callResults struct {
	Causes []string `json:"causes"`
}

// openPort is a port that MPI will use.
type openPort struct {
	listener *net.TCPListener
	challenge
	logins *logins
	// callers is the number of callers that are still missing. The port closes at zero; if
	// it is never set, the port stays open.
	callers atomic.Int32
}

// listenForCalls opens the first free port of the ranges, as most implementations do.
func listenForCalls(host string, expected challenge, ranges mpi.PortRanges) (*openPort, error) {
	listener, err := listenInRanges(host, ranges)
	if err != nil {
		return nil, err
	}
	return &openPort{listener: listener, challenge: expected, logins: newLogins()}, nil
}

func listenInRanges(host string, ranges mpi.PortRanges) (*net.TCPListener, error) {
	if len(ranges) == 0 {
		ranges = mpi.PortRanges{{}} // Port 0: the system chooses.
	}
	var last error
	for _, each := range ranges {
		for number := each.First; number <= each.Last; number++ {
			listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(number)))
			if err == nil {
				return listener.(*net.TCPListener), nil
			}
			last = err
			// Other ports would fail in the same way.
			if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
				return nil, err
			}
		}
	}
	return nil, last
}

func (op *openPort) number() int { return op.listener.Addr().(*net.TCPAddr).Port }

func (op *openPort) close() {
	if op != nil {
		_ = op.listener.Close()
	}
}

func (op *openPort) serve() {
	defer op.close()
	for {
		connection, err := op.listener.AcceptTCP()
		if err != nil {
			return
		}
		op.logins.add(connection)
		go op.answer(connection)
	}
}

func (op *openPort) answer(connection *net.TCPConn) {
	defer connection.Close()
	defer op.logins.remove(connection)
	_ = connection.SetDeadline(time.Now().Add(attemptTimeout))
	// A connection in TIME_WAIT would block the port for MPI.
	_ = connection.SetLinger(0)
	received := make([]byte, len(op.Question))
	if _, err := io.ReadFull(connection, received); err != nil || subtle.ConstantTimeCompare(received, []byte(op.Question)) == 0 {
		return
	}
	op.called()
	if _, err := io.WriteString(connection, op.Answer); err != nil {
		return
	}
	// The caller closes first: a reset from here could overtake the response.
	_, _ = connection.Read(received)
}

// called closes the port before it responds to the last caller: once all callers have
// their responses, every port is free for MPI.
func (op *openPort) called() {
	if op.callers.Add(-1) == 0 {
		op.close()
	}
}

var errOtherProgram = errors.New("another program responds")

// callAll connects to all addresses at once.
func callAll(ctx context.Context, request callRequest) callResults {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	results := callResults{Causes: make([]string, len(request.Addresses))}
	var calls sync.WaitGroup
	for i, address := range request.Addresses {
		calls.Go(func() {
			if err := callPort(ctx, address, request.challenge); err != nil {
				results.Causes[i] = callCause(err)
			}
		})
	}
	calls.Wait()
	return results
}

func callPort(ctx context.Context, address string, expected challenge) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	if deadline, limited := ctx.Deadline(); limited {
		_ = connection.SetDeadline(deadline)
	}
	if _, err := io.WriteString(connection, expected.Question); err != nil {
		return err
	}
	received := make([]byte, len(expected.Answer))
	if _, err := io.ReadFull(connection, received); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(received, []byte(expected.Answer)) == 0 {
		return errOtherProgram
	}
	waitForEnd(connection.(*net.TCPConn), received)
	return nil
}

// waitForEnd closes the connection and waits until the other end has closed it, too: then
// its port is free for MPI.
func waitForEnd(connection *net.TCPConn, buffer []byte) {
	_ = connection.SetDeadline(time.Now().Add(hangUpPatience))
	_ = connection.CloseWrite()
	_, _ = connection.Read(buffer)
}

// callCause returns why a call failed, as a text for users.
func callCause(err error) string {
	switch dialTrouble(err) {
	case protocol.Refused:
		return troubleText[protocol.Refused]
	case protocol.TimedOut:
		return troubleText[protocol.TimedOut]
	default:
		return plainCause(err).Error()
	}
}

// answer serves the requests of one connection that do not belong to a session. Unknown
// requests are refused, such as port forwarding. A refusal is also the response to a
// keepalive.
func (w *Worker) answer(connection ssh.Conn, requests <-chan *ssh.Request) {
	// A client can only have one open port at a time.
	var open *openPort
	defer func() { open.close() }()
	for request := range requests {
		var reply any
		switch request.Type {
		case openPortRequest:
			open.close()
			open, reply = openOwnPort(connection.LocalAddr(), request.Payload)
		case callPortsRequest:
			reply = callOthers(request.Payload)
		case ranksRequest:
			reply = w.answerRanks(request.Payload)
		}
		if request.WantReply {
			text, err := json.Marshal(reply)
			_ = request.Reply(reply != nil && err == nil, text)
		}
	}
}

// openOwnPort opens a port at the address that the launcher connected to.
func openOwnPort(own net.Addr, payload []byte) (*openPort, any) {
	var request portRequest
	address, ok := own.(*net.TCPAddr)
	if !ok || json.Unmarshal(payload, &request) != nil || request.Question == "" || request.Callers < 1 {
		return nil, nil
	}
	if len(request.Ranges) == 0 {
		// The pods of workers may have their own settings.
		request.Ranges = mpi.PortsOf(os.Environ(), nil).Ranks
	}
	opened := openedPort{Ranges: request.Ranges}
	port, err := listenForCalls(address.IP.String(), request.challenge, request.Ranges)
	if err != nil {
		opened.Cause = plainCause(err).Error()
		return nil, opened
	}
	port.callers.Store(request.Callers)
	_ = port.listener.SetDeadline(time.Now().Add(openPortPatience))
	go port.serve()
	opened.Port = port.number()
	return port, opened
}

func callOthers(payload []byte) any {
	var request callRequest
	if json.Unmarshal(payload, &request) != nil || request.Question == "" || len(request.Addresses) > maxCalls {
		return nil
	}
	return callAll(context.Background(), request)
}

// parsePorts reads the variable that overrides the MPI settings of the job. If it returns
// nil, no ports are checked.
func parsePorts(text string, environment, command []string) (*mpi.Ports, error) {
	switch text {
	case "":
		ports := mpi.PortsOf(environment, command)
		return &ports, nil
	case "off":
		return nil, nil
	}
	ranges, err := mpi.ParsePortRanges(text)
	if err != nil {
		return nil, fmt.Errorf("%s must be off, or ports such as 10000-10099: %w", protocol.PortsVariable, err)
	}
	return &mpi.Ports{Launcher: ranges, Ranks: ranges}, nil
}
