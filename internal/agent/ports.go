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

// Requests of a launcher that checks the ports between its hosts. They come over a
// connection that has logged in with the job's key, and run nothing.
const (
	openPortRequest  = "open-port@trireme"
	callPortsRequest = "call-ports@trireme"
)

const (
	// openPortPatience is how long a port stays open for callers that do not come.
	openPortPatience = 2 * attemptTimeout
	// hangUpPatience is for networks that do not pass on how a connection ended.
	hangUpPatience = time.Second
	// maxCalls is how many ports one request may call: a neighbour and the launcher.
	maxCalls = 2
)

// challenge is what a caller says and what it has to hear. Both are random, so that
// nothing else that listens on the port counts as the host.
type challenge struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// portRequest asks a host to listen on one of the ports that MPI will use.
type portRequest struct {
	challenge
	// Ranges that MPI may choose from; none lets the system choose.
	Ranges mpi.PortRanges `json:"ranges,omitempty"`
	// Callers is how many will call.
	Callers int32 `json:"callers"`
}

// openedPort is the answer: a port, or why there is none.
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

// callResults are in the order of the addresses: why each call failed, or nothing.
type callResults struct {
	Causes []string `json:"causes"`
}

// openPort is a port that MPI will use.
type openPort struct {
	listener *net.TCPListener
	challenge
	logins *logins
	// callers is how many are still to call; without it the port stays open.
	callers atomic.Int32
}

// listenForCalls opens the first free port of the ranges, as most MPIs do.
func listenForCalls(host string, said challenge, ranges mpi.PortRanges) (*openPort, error) {
	listener, err := listenInRanges(host, ranges)
	if err != nil {
		return nil, err
	}
	return &openPort{listener: listener, challenge: said, logins: newLogins()}, nil
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
			// More of these will not be different.
			if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
				return nil, err
			}
		}
	}
	return nil, last
}

func (port *openPort) number() int { return port.listener.Addr().(*net.TCPAddr).Port }

func (port *openPort) close() {
	if port != nil {
		_ = port.listener.Close()
	}
}

func (port *openPort) serve() {
	defer port.close()
	for {
		connection, err := port.listener.AcceptTCP()
		if err != nil {
			return
		}
		port.logins.add(connection)
		go port.answer(connection)
	}
}

func (port *openPort) answer(connection *net.TCPConn) {
	defer connection.Close()
	defer port.logins.remove(connection)
	_ = connection.SetDeadline(time.Now().Add(attemptTimeout))
	// A connection that lingers would keep MPI from the port.
	_ = connection.SetLinger(0)
	asked := make([]byte, len(port.Question))
	if _, err := io.ReadFull(connection, asked); err != nil || subtle.ConstantTimeCompare(asked, []byte(port.Question)) == 0 {
		return
	}
	port.called()
	if _, err := io.WriteString(connection, port.Answer); err != nil {
		return
	}
	// The caller hangs up first: our reset could overtake the answer.
	_, _ = connection.Read(asked)
}

// called closes the port for the last caller before it is answered: once all have
// their answers, every port is free for MPI.
func (port *openPort) called() {
	if port.callers.Add(-1) == 0 {
		port.close()
	}
}

var errOtherProgram = errors.New("another program answers")

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
	heard := make([]byte, len(expected.Answer))
	if _, err := io.ReadFull(connection, heard); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(heard, []byte(expected.Answer)) == 0 {
		return errOtherProgram
	}
	waitForEnd(connection.(*net.TCPConn), heard)
	return nil
}

// waitForEnd hangs up and waits until the other end has, too: from then on its port is
// free for MPI.
func waitForEnd(connection *net.TCPConn, buffer []byte) {
	_ = connection.SetDeadline(time.Now().Add(hangUpPatience))
	_ = connection.CloseWrite()
	_, _ = connection.Read(buffer)
}

// callCause is why a call failed, for people.
func callCause(err error) string {
	switch dialTrouble(err) {
	case protocol.Refused:
		return words[protocol.Refused]
	case protocol.TimedOut:
		return words[protocol.TimedOut]
	default:
		return plainCause(err).Error()
	}
}

// answer serves the requests of one connection that do not belong to a session. All
// others are refused: forwarding of ports is asked for so. A refusal is also the answer
// to a client that asks whether we are still here.
func (worker *Worker) answer(connection ssh.Conn, requests <-chan *ssh.Request) {
	// One at a time: a client cannot have a worker open many.
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
		}
		if request.WantReply {
			text, err := json.Marshal(reply)
			_ = request.Reply(reply != nil && err == nil, text)
		}
	}
}

// openOwnPort opens a port at the address that the launcher has reached.
func openOwnPort(own net.Addr, payload []byte) (*openPort, any) {
	var request portRequest
	address, ok := own.(*net.TCPAddr)
	if !ok || json.Unmarshal(payload, &request) != nil || request.Question == "" || request.Callers < 1 {
		return nil, nil
	}
	if len(request.Ranges) == 0 {
		// The pods of workers may have settings of their own.
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

// parsePorts reads the variable that overrides what the job sets for its MPI. Without
// ports nothing is checked.
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
