// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// advice says what to check.
var advice = map[protocol.Trouble]string{
	protocol.NameNotFound: "its pod does not exist yet or has finished, or the job's headless Service is missing",
	protocol.Refused:      "its pod is running, but nothing listens on the port: its container may be starting, or its image runs no SSH server",
	protocol.TimedOut:     "its pod is not running, or a NetworkPolicy blocks the port",
	protocol.HostKeyWrong: "another pod answers under this name, or the pod was started with the key of another job",
	protocol.KeyRefused:   "the pod was started with the key of another job",
	protocol.Broken:       "the connection broke; see the pod's log",
	protocol.PortsBlocked: "a NetworkPolicy, a service mesh such as Istio or a firewall blocks them: allow TCP between all pods of the job, on all ports or on a range that you set for MPI",
	protocol.NoFreePort:   "set a larger range, or stop the processes that use these ports",
}

// connectError says why a host cannot be reached.
type connectError struct {
	host    string
	trouble protocol.Trouble
	cause   error
}

func (ce *connectError) Error() string {
	return fmt.Sprintf("cannot reach %s: %s (%v)", ce.host, troubleText[ce.trouble], ce.cause)
}

func (ce *connectError) Unwrap() error { return ce.cause }

var troubleText = map[protocol.Trouble]string{
	protocol.NameNotFound: "its name is not found",
	protocol.Refused:      "connection refused",
	protocol.TimedOut:     "no answer",
	protocol.HostKeyWrong: "its host key is not the job's",
	protocol.KeyRefused:   "it refuses the job's key",
	protocol.Broken:       "the connection broke",
}

// client connects to workers.
type client struct {
	config *ssh.ClientConfig
	port   int
	// bannerPorts is for images with their own sshd: the host counts as reached if an SSH
	// server responds on any of these ports. The image's port is not known.
	bannerPorts []int
	resolver    *net.Resolver
	// stopping is called when the host announces that it terminates.
	stopping func()
}

// bannerClient only checks whether an SSH server responds.
func bannerClient() *client {
	return &client{bannerPorts: []int{protocol.Port, 22}, resolver: net.DefaultResolver}
}

var errHostKey = errors.New("host key differs")

// newClient logs in as a user with the launcher's key, to hosts with the job's
// host key.
func newClient(user string) (*client, error) {
	port, err := portVariable()
	if err != nil {
		return nil, err
	}
	key, err := readKey(protocol.ClientKey)
	if err != nil {
		return nil, err
	}
	hostKeys, err := readPublicKeys(protocol.HostPublicKey)
	if err != nil {
		return nil, err
	}
	return &client{port: port, resolver: net.DefaultResolver, config: &ssh.ClientConfig{
		Config: algorithms(),
		User:   user,
		Auth:   []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: func(_ string, _ net.Addr, offered ssh.PublicKey) error {
			for _, known := range hostKeys {
				if bytes.Equal(known.Marshal(), offered.Marshal()) {
					return nil
				}
			}
			return errHostKey
		},
		ClientVersion: "SSH-2.0-Trireme",
	}}, nil
}

// timing is how long the steps of a connection took.
type timing struct{ dns, connect time.Duration }

// attemptTimeout limits one attempt.
const attemptTimeout = 5 * time.Second

// connect makes one attempt. The session is nil for a banner client.
func (c *client) connect(ctx context.Context, host string, port int) (*ssh.Client, timing, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	var took timing
	start := time.Now()
	addresses, err := c.resolver.LookupHost(ctx, host)
	took.dns = time.Since(start)
	if err != nil {
		return nil, took, &connectError{host, lookupTrouble(err), err}
	}
	start = time.Now()
	var session *ssh.Client
	if len(c.bannerPorts) > 0 {
		err = c.anyBanner(ctx, host, addresses[0])
	} else {
		session, err = c.login(ctx, host, net.JoinHostPort(addresses[0], strconv.Itoa(port)))
	}
	took.connect = time.Since(start)
	return session, took, err
}

// anyBanner checks whether an SSH server responds on any of the ports.
func (c *client) anyBanner(ctx context.Context, host, address string) error {
	var tries sync.WaitGroup
	failures := make([]error, len(c.bannerPorts))
	for i, port := range c.bannerPorts {
		tries.Go(func() { failures[i] = banner(ctx, host, net.JoinHostPort(address, strconv.Itoa(port))) })
	}
	tries.Wait()
	if slices.Contains(failures, nil) {
		return nil
	}
	return failures[0]
}

// banner checks whether an SSH server responds at an address.
func banner(ctx context.Context, host, address string) error {
	connection, err := dial(ctx, host, address)
	if err != nil {
		return err
	}
	defer connection.Close()
	return readBanner(connection, host)
}

func lookupTrouble(err error) protocol.Trouble {
	var failure *net.DNSError
	if errors.As(err, &failure) && failure.IsNotFound {
		return protocol.NameNotFound
	}
	return protocol.TimedOut
}

func (c *client) login(ctx context.Context, host, address string) (*ssh.Client, error) {
	connection, err := dial(ctx, host, address)
	if err != nil {
		return nil, err
	}
	session, channels, requests, err := ssh.NewClientConn(connection, address, c.config)
	if err != nil {
		_ = connection.Close()
		return nil, &connectError{host, loginTrouble(err), plainCause(err)}
	}
	_ = connection.SetDeadline(time.Time{})
	others := make(chan *ssh.Request)
	go c.handleRequests(requests, others)
	return ssh.NewClient(session, channels, others), nil
}

// handleRequests calls stopping when the host announces that it terminates.
func (c *client) handleRequests(requests <-chan *ssh.Request, others chan<- *ssh.Request) {
	defer close(others)
	for request := range requests {
		if request.Type == stoppingRequest && c.stopping != nil {
			c.stopping()
			continue
		}
		others <- request
	}
}

// dial opens a connection with the deadline of the context.
func dial(ctx context.Context, host, address string) (net.Conn, error) {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, &connectError{host, dialTrouble(err), plainCause(err)}
	}
	if deadline, set := ctx.Deadline(); set {
		_ = connection.SetDeadline(deadline)
	}
	return connection, nil
}

func dialTrouble(err error) protocol.Trouble {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return protocol.Refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT),
		errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return protocol.TimedOut
	default:
		return protocol.Broken
	}
}

// loginTrouble parses error texts, because the library has no types for them.
func loginTrouble(err error) protocol.Trouble {
	switch {
	case errors.Is(err, errHostKey):
		return protocol.HostKeyWrong
	case strings.Contains(err.Error(), "unable to authenticate"):
		return protocol.KeyRefused
	case errors.Is(err, os.ErrDeadlineExceeded):
		return protocol.TimedOut
	default:
		return protocol.Broken
	}
}

// plainCause returns the innermost error: outer ones only add the address.
func plainCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// readBanner reads the first line of an SSH server.
func readBanner(connection net.Conn, host string) error {
	buffer := make([]byte, 4)
	for read := 0; read < len(buffer); {
		count, err := connection.Read(buffer[read:])
		if err != nil {
			return &connectError{host, loginTrouble(err), plainCause(err)}
		}
		read += count
	}
	if string(buffer) != "SSH-" {
		return &connectError{host, protocol.Broken, errors.New("the program that listens there is not an SSH server")}
	}
	return nil
}

// reach retries until a host is reached or the context is done, and then returns the last
// failure. before is called before each attempt.
func (c *client) reach(ctx context.Context, host string, port int, before func() (after func())) (*ssh.Client, timing, error) {
	var last error
	began := time.Now()
	for pause := 50 * time.Millisecond; ; pause = nextPause(pause, time.Since(began)) {
		after := before()
		session, took, err := c.connect(ctx, host, port)
		after()
		if err == nil {
			return session, took, nil
		}
		// An attempt that the deadline cuts short says less than the one before it.
		if last == nil || !isExpired(ctx) {
			last = err
		}
		select {
		case <-ctx.Done():
			return nil, took, last
		case <-time.After(pause):
		}
	}
}

// nextPause grows to a second, but stays short at first, while most hosts start: with
// one attempt per second, a launch would start half a second late on average.
func nextPause(pause, waited time.Duration) time.Duration {
	if waited < 5*time.Second {
		return min(2*pause, 100*time.Millisecond)
	}
	return min(2*pause, time.Second)
}

// isExpired reports whether the deadline has passed. A connection with the context's
// deadline fails slightly before the context is done.
func isExpired(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}
