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

// advice is what to look at.
var advice = map[protocol.Trouble]string{
	protocol.NameNotFound: "its pod does not exist yet or has ended, or the job's headless Service is missing",
	protocol.Refused:      "its pod runs, but nothing listens on the port: its container may be starting, or its image runs no SSH server",
	protocol.TimedOut:     "its pod does not run, or a NetworkPolicy blocks the port",
	protocol.HostKeyWrong: "another pod answers under this name, or the pod was started with the key of another job",
	protocol.KeyRefused:   "the pod was started with the key of another job",
	protocol.Broken:       "the connection broke; see the pod's log",
	protocol.PortsBlocked: "a NetworkPolicy, a service mesh such as Istio or a firewall blocks them: allow TCP between all pods of the job, on all ports or on a range that you set for MPI",
	protocol.NoFreePort:   "set a larger range, or stop what uses these ports",
}

// connectError is why a host cannot be reached, in words for users.
type connectError struct {
	host    string
	trouble protocol.Trouble
	cause   error
}

func (failure *connectError) Error() string {
	return fmt.Sprintf("cannot reach %s: %s (%v)", failure.host, words[failure.trouble], failure.cause)
}

func (failure *connectError) Unwrap() error { return failure.cause }

var words = map[protocol.Trouble]string{
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
	// bannerPorts is for images with an sshd of their own: it is enough that one
	// answers, at any of these ports. Nothing tells which one an image has chosen.
	bannerPorts []int
	resolver    *net.Resolver
	// stopping is called when the host says that it ends.
	stopping func()
}

// bannerClient only looks whether an SSH server answers.
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
		User: user,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
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

// timing is how long the parts of a connection took.
type timing struct{ dns, connect time.Duration }

// attemptTimeout is how long one try may take.
const attemptTimeout = 5 * time.Second

// connect tries once. The session is nil where only a banner was asked for.
func (client *client) connect(ctx context.Context, host string, port int) (*ssh.Client, timing, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	var took timing
	start := time.Now()
	addresses, err := client.resolver.LookupHost(ctx, host)
	took.dns = time.Since(start)
	if err != nil {
		return nil, took, &connectError{host, lookupTrouble(err), err}
	}
	start = time.Now()
	var session *ssh.Client
	if len(client.bannerPorts) > 0 {
		err = client.anyBanner(ctx, host, addresses[0])
	} else {
		session, err = client.login(ctx, host, net.JoinHostPort(addresses[0], strconv.Itoa(port)))
	}
	took.connect = time.Since(start)
	return session, took, err
}

// anyBanner is content with an SSH server at any of the ports.
func (client *client) anyBanner(ctx context.Context, host, address string) error {
	var tries sync.WaitGroup
	failures := make([]error, len(client.bannerPorts))
	for i, port := range client.bannerPorts {
		tries.Go(func() { failures[i] = banner(ctx, host, net.JoinHostPort(address, strconv.Itoa(port))) })
	}
	tries.Wait()
	if slices.Contains(failures, nil) {
		return nil
	}
	return failures[0]
}

// banner looks whether an SSH server answers at an address.
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

func (client *client) login(ctx context.Context, host, address string) (*ssh.Client, error) {
	connection, err := dial(ctx, host, address)
	if err != nil {
		return nil, err
	}
	session, channels, requests, err := ssh.NewClientConn(connection, address, client.config)
	if err != nil {
		_ = connection.Close()
		return nil, &connectError{host, loginTrouble(err), plainCause(err)}
	}
	_ = connection.SetDeadline(time.Time{})
	others := make(chan *ssh.Request)
	go client.hear(requests, others)
	return ssh.NewClient(session, channels, others), nil
}

// hear listens for the host's word that it ends.
func (client *client) hear(requests <-chan *ssh.Request, others chan<- *ssh.Request) {
	defer close(others)
	for request := range requests {
		if request.Type == stoppingRequest && client.stopping != nil {
			client.stopping()
			continue
		}
		others <- request
	}
}

// dial opens a connection that ends with the context.
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

// loginTrouble: the library has no types for these.
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

// plainCause is the innermost error: the address before it says nothing more
// than the host's name does.
func plainCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// readBanner reads the line that every SSH server begins with.
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
		return &connectError{host, protocol.Broken, errors.New("what listens there is no SSH server")}
	}
	return nil
}

// reach tries until a host is reached or the context is done; then it is the
// last failure that counts. before is called before each try.
func (client *client) reach(ctx context.Context, host string, port int, before func() (after func())) (*ssh.Client, timing, error) {
	var last error
	began := time.Now()
	for pause := 50 * time.Millisecond; ; pause = nextPause(pause, time.Since(began)) {
		after := before()
		session, took, err := client.connect(ctx, host, port)
		after()
		if err == nil {
			return session, took, nil
		}
		// A try that was cut short tells less than the one before it.
		if last == nil || !isOver(ctx) {
			last = err
		}
		select {
		case <-ctx.Done():
			return nil, took, last
		case <-time.After(pause):
		}
	}
}

// nextPause grows to a second, but not while most hosts start: what is tried once a
// second begins half a second late on average.
func nextPause(pause, waited time.Duration) time.Duration {
	if waited < 5*time.Second {
		return min(2*pause, 100*time.Millisecond)
	}
	return min(2*pause, time.Second)
}

// isOver tells whether the time is up. A connection that has the context's deadline
// ends a moment before the context has noticed.
func isOver(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}
