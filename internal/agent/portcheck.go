package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// portCheck proves that the hosts of a job reach each other on the ports that MPI will
// use: without it a blocked port shows as a job that runs and does nothing.
//
// Each worker connects to the next one in a ring, and to the launcher. That tries the
// way into every host and out of it, with a number of connections that grows with the
// job and not with its square. The launcher connects to workers only if ranks run on it:
// mpirun itself waits to be connected to.
type portCheck struct {
	ports     mpi.Ports
	challenge challenge
	launcher  *launcherEndpoint
	// launcherHasRanks: the launcher is one of the hosts of the first ring.
	launcherHasRanks bool
}

func newPortCheck(ports mpi.Ports, launcher string, launcherHasRanks bool) *portCheck {
	return &portCheck{
		ports: ports, challenge: challenge{Question: rand.Text(), Answer: rand.Text()},
		launcher: &launcherEndpoint{host: launcher}, launcherHasRanks: launcherHasRanks,
	}
}

// endpoint is a host that opens a port and connects to those of others.
type endpoint interface {
	name() string
	// addressFor is where another host finds it.
	addressFor(other endpoint) string
	open(context.Context, portRequest) (openedPort, error)
	call(context.Context, callRequest) (callResults, error)
}

// route is a connection that MPI may need.
type route struct {
	from, to endpoint
	port     openedPort
	failure  *portFailure
}

// portFailure is why one host cannot connect to another.
type portFailure struct {
	trouble  protocol.Trouble
	from, to string
	port     openedPort
	// cause is what the system says.
	cause string
	// lost: the host itself is no longer reached.
	lost error
}

func (failure *portFailure) Error() string {
	ranges := failure.port.Ranges
	switch {
	case failure.lost != nil:
		return failure.lost.Error()
	case failure.trouble == protocol.NoFreePort && len(ranges) > 0:
		return fmt.Sprintf("%s has no free port among %s, which MPI is set to use (%s)", failure.to, ranges, failure.cause)
	case failure.trouble == protocol.NoFreePort:
		return fmt.Sprintf("%s cannot open a TCP port (%s)", failure.to, failure.cause)
	case len(ranges) > 0:
		return fmt.Sprintf("%s cannot connect to %s on TCP port %d (%s). MPI is set to use the ports %s", failure.from, failure.to, failure.port.Port, failure.cause, ranges)
	default:
		return fmt.Sprintf("%s cannot connect to %s on TCP port %d (%s). No ports are set for MPI, so it uses any (if the image sets them, repeat them in %s)", failure.from, failure.to, failure.port.Port, failure.cause, protocol.PortsVariable)
	}
}

// run checks all routes, and those that fail again and again. It returns what still
// fails when the time of the gate is over. The first round has as long as it takes, so
// that workers that came at the last moment are checked, too.
func (check *portCheck) run(ctx, limited context.Context, workers []*workerEndpoint, isFirst bool) []*portFailure {
	routes := check.tryOnce(ctx, check.routes(workers, isFirst))
	for pause := 50 * time.Millisecond; len(routes) > 0; pause = min(2*pause, time.Second) {
		failures := failuresOf(routes)
		select {
		case <-limited.Done():
		case <-time.After(pause):
			routes = check.tryOnce(limited, routes)
		}
		// A round that was cut short tells less than the one before it.
		if limited.Err() != nil && len(routes) > 0 {
			return failures
		}
	}
	return nil
}

// routes are the connections to try in a ring.
func (check *portCheck) routes(workers []*workerEndpoint, isFirst bool) []*route {
	var ring []endpoint
	for _, worker := range workers {
		ring = append(ring, worker)
	}
	if check.launcherHasRanks && isFirst {
		ring = append(ring, check.launcher)
	}
	var routes []*route
	for i, from := range ring {
		next := ring[(i+1)%len(ring)]
		if next != from {
			routes = append(routes, &route{from: from, to: next})
		}
		if from != check.launcher && next != check.launcher {
			routes = append(routes, &route{from: from, to: check.launcher})
		}
	}
	return routes
}

// tryOnce has every target open a port and every source connect to its targets, and
// returns the routes that fail.
func (check *portCheck) tryOnce(ctx context.Context, routes []*route) []*route {
	sources, targets := map[endpoint][]*route{}, map[endpoint][]*route{}
	for _, route := range routes {
		route.failure = nil
		sources[route.from] = append(sources[route.from], route)
		targets[route.to] = append(targets[route.to], route)
	}
	inParallel(targets, func(to endpoint, routes []*route) {
		openFor(ctx, to, routes, portRequest{challenge: check.challenge, Ranges: check.rangesOf(to), Callers: int32(len(routes))})
	})
	inParallel(sources, func(from endpoint, routes []*route) {
		routes = slices.DeleteFunc(routes, func(route *route) bool { return route.failure != nil })
		if len(routes) > 0 {
			callFrom(ctx, from, routes, check.challenge)
		}
	})
	return slices.DeleteFunc(routes, func(route *route) bool { return route.failure == nil })
}

func (check *portCheck) rangesOf(host endpoint) mpi.PortRanges {
	if _, isLauncher := host.(*launcherEndpoint); isLauncher {
		return check.ports.Launcher
	}
	return check.ports.Ranks
}

// openFor has one host open a port for the routes to it.
func openFor(ctx context.Context, to endpoint, routes []*route, request portRequest) {
	port, err := to.open(ctx, request)
	switch {
	case err != nil:
		failAll(routes, &portFailure{trouble: protocol.Broken, from: to.name(), lost: err})
	case port.Port == 0:
		failAll(routes, &portFailure{trouble: protocol.NoFreePort, from: to.name(), to: to.name(), port: port, cause: port.Cause})
	}
	for _, route := range routes {
		route.port = port
	}
}

// callFrom has one host connect to the others at the ends of its routes.
func callFrom(ctx context.Context, from endpoint, routes []*route, said challenge) {
	request := callRequest{challenge: said}
	for _, route := range routes {
		request.Addresses = append(request.Addresses, net.JoinHostPort(route.to.addressFor(from), strconv.Itoa(route.port.Port)))
	}
	results, err := from.call(ctx, request)
	if err == nil && len(results.Causes) != len(routes) {
		err = &connectError{from.name(), protocol.Broken, errors.New("its agent answers something else")}
	}
	if err != nil {
		failAll(routes, &portFailure{trouble: protocol.Broken, from: from.name(), lost: err})
		return
	}
	for i, route := range routes {
		if cause := results.Causes[i]; cause != "" {
			route.failure = &portFailure{trouble: protocol.PortsBlocked, from: from.name(), to: route.to.name(), port: route.port, cause: cause}
		}
	}
}

func failAll(routes []*route, failure *portFailure) {
	for _, route := range routes {
		route.failure = failure
	}
}

// failuresOf are the failures in the order of the hosts.
func failuresOf(routes []*route) []*portFailure {
	var failures []*portFailure
	for _, route := range routes {
		if !slices.Contains(failures, route.failure) {
			failures = append(failures, route.failure)
		}
	}
	return failures
}

// inParallel does something for many hosts at a time.
func inParallel(hosts map[endpoint][]*route, do func(endpoint, []*route)) {
	turns := make(chan struct{}, gateParallel)
	var all sync.WaitGroup
	for host, routes := range hosts {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			do(host, routes)
		})
	}
	all.Wait()
}

// launcherEndpoint is the launcher itself. Its port stays open for all rings, until the
// gate is passed.
type launcherEndpoint struct {
	host string

	mutex sync.Mutex
	port  *openPort
}

func (launcher *launcherEndpoint) name() string { return launcher.host }

// addressFor is the one that the worker was reached from.
func (launcher *launcherEndpoint) addressFor(other endpoint) string {
	return other.(*workerEndpoint).local
}

func (launcher *launcherEndpoint) open(_ context.Context, request portRequest) (openedPort, error) {
	launcher.mutex.Lock()
	defer launcher.mutex.Unlock()
	opened := openedPort{Ranges: request.Ranges}
	if launcher.port == nil {
		port, err := listenForCalls("", request.challenge, request.Ranges)
		if err != nil {
			opened.Cause = plainCause(err).Error()
			return opened, nil
		}
		launcher.port = port
		go port.serve()
	}
	opened.Port = launcher.port.number()
	return opened, nil
}

func (launcher *launcherEndpoint) close() { launcher.port.close() }

func (launcher *launcherEndpoint) call(ctx context.Context, request callRequest) (callResults, error) {
	return callAll(ctx, request), nil
}

// workerEndpoint is a worker, over a connection that has logged in to it.
type workerEndpoint struct {
	client  *client
	host    string
	session *ssh.Client
	// local and remote are the addresses of both ends.
	local, remote string
}

func (worker *workerEndpoint) use(session *ssh.Client) {
	worker.session = session
	worker.local, _, _ = net.SplitHostPort(session.LocalAddr().String())
	worker.remote, _, _ = net.SplitHostPort(session.RemoteAddr().String())
}

func (worker *workerEndpoint) close() {
	if worker.session != nil {
		_ = worker.session.Close()
		worker.session = nil
	}
}

func (worker *workerEndpoint) name() string { return worker.host }

func (worker *workerEndpoint) addressFor(endpoint) string { return worker.remote }

func (worker *workerEndpoint) open(ctx context.Context, request portRequest) (openedPort, error) {
	var opened openedPort
	err := worker.ask(ctx, openPortRequest, request, &opened)
	return opened, err
}

func (worker *workerEndpoint) call(ctx context.Context, request callRequest) (callResults, error) {
	var results callResults
	err := worker.ask(ctx, callPortsRequest, request, &results)
	return results, err
}

// ask sends a request and reads its answer. A worker whose container was restarted while
// the gate waited for others is logged in to again.
func (worker *workerEndpoint) ask(ctx context.Context, name string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*attemptTimeout)
	defer cancel()
	if worker.session == nil {
		session, _, err := worker.client.connect(ctx, worker.host, worker.client.port)
		if err != nil {
			return err
		}
		worker.use(session)
	}
	payload, err := json.Marshal(request)
	if err != nil {
		return err
	}
	session := worker.session
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	accepted, reply, err := session.SendRequest(name, true, payload)
	if err == nil && !accepted {
		err = errors.New("its agent refuses to check ports")
	}
	if err == nil {
		err = json.Unmarshal(reply, answer)
	}
	if err != nil {
		worker.close()
		return &connectError{worker.host, protocol.Broken, err}
	}
	return nil
}
