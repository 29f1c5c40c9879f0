// SPDX-License-Identifier: Apache-2.0

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

// portCheck verifies that the hosts of a job can connect to each other on the ports that
// MPI will use. Without it, a job with a blocked port runs and does nothing.
//
// Each worker connects to the next one in a ring, and to the launcher. That checks
// incoming and outgoing traffic of every host, with a number of connections that is linear
// in the size of the job. The launcher connects to workers only if ranks run on it: mpirun
// itself only accepts connections.
type portCheck struct {
	ports     mpi.Ports
	challenge challenge
	launcher  *launcherEndpoint
	// launcherHasRanks makes the launcher one of the hosts of the first ring.
	launcherHasRanks bool
}

func newPortCheck(ports mpi.Ports, launcher string, launcherHasRanks bool) *portCheck {
	return &portCheck{
		ports: ports, challenge: challenge{Question: rand.Text(), Answer: rand.Text()},
		launcher: &launcherEndpoint{host: launcher}, launcherHasRanks: launcherHasRanks,
	}
}

// endpoint is a host that can open a port and connect to ports of others.
type endpoint interface {
	name() string
	// addressFor is its address for another host.
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

// portFailure says why one host cannot connect to another.
type portFailure struct {
	trouble  protocol.Trouble
	from, to string
	port     openedPort
	// cause is the error of the operating system.
	cause string
	// lost is set if the host itself cannot be reached any more.
	lost error
}

func (pf *portFailure) Error() string {
	ranges := pf.port.Ranges
	switch {
	case pf.lost != nil:
		return pf.lost.Error()
	case pf.trouble == protocol.NoFreePort && len(ranges) > 0:
		return fmt.Sprintf("%s has no free port in %s, the range that is set for MPI (%s)", pf.to, ranges, pf.cause)
	case pf.trouble == protocol.NoFreePort:
		return fmt.Sprintf("%s cannot open a TCP port (%s)", pf.to, pf.cause)
	case len(ranges) > 0:
		return fmt.Sprintf("%s cannot connect to %s on TCP port %d (%s). The range that is set for MPI is %s", pf.from, pf.to, pf.port.Port, pf.cause, ranges)
	default:
		return fmt.Sprintf("%s cannot connect to %s on TCP port %d (%s). No range is set for MPI, so it uses any port (if the image sets a range, also set it in %s)", pf.from, pf.to, pf.port.Port, pf.cause, protocol.PortsVariable)
	}
}

// run checks all routes, and retries those that fail. It returns the failures that remain
// when the gate times out. The first round has no timeout, so that workers that are reached
// at the last moment are checked, too.
func (pc *portCheck) run(ctx, limited context.Context, workers []*workerEndpoint, isFirst bool) []*portFailure {
	routes := pc.tryOnce(ctx, pc.routes(workers, isFirst))
	for pause := 50 * time.Millisecond; len(routes) > 0; pause = min(2*pause, time.Second) {
		failures := failuresOf(routes)
		select {
		case <-limited.Done():
		case <-time.After(pause):
			routes = pc.tryOnce(limited, routes)
		}
		// A round that the deadline cuts short says less than the one before it.
		if limited.Err() != nil && len(routes) > 0 {
			return failures
		}
	}
	return nil
}

// routes returns the connections to try in a ring.
func (pc *portCheck) routes(workers []*workerEndpoint, isFirst bool) []*route {
	var ring []endpoint
	for _, worker := range workers {
		ring = append(ring, worker)
	}
	if pc.launcherHasRanks && isFirst {
		ring = append(ring, pc.launcher)
	}
	var routes []*route
	for i, from := range ring {
		next := ring[(i+1)%len(ring)]
		if next != from {
			routes = append(routes, &route{from: from, to: next})
		}
		if from != pc.launcher && next != pc.launcher {
			routes = append(routes, &route{from: from, to: pc.launcher})
		}
	}
	return routes
}

// tryOnce lets every target open a port and every source connect to its targets, and
// returns the routes that fail.
func (pc *portCheck) tryOnce(ctx context.Context, routes []*route) []*route {
	sources, targets := map[endpoint][]*route{}, map[endpoint][]*route{}
	for _, route := range routes {
		route.failure = nil
		sources[route.from] = append(sources[route.from], route)
		targets[route.to] = append(targets[route.to], route)
	}
	inParallel(targets, func(to endpoint, routes []*route) {
		openFor(ctx, to, routes, portRequest{challenge: pc.challenge, Ranges: pc.rangesOf(to), Callers: int32(len(routes))})
	})
	inParallel(sources, func(from endpoint, routes []*route) {
		routes = slices.DeleteFunc(routes, func(route *route) bool { return route.failure != nil })
		if len(routes) > 0 {
			callFrom(ctx, from, routes, pc.challenge)
		}
	})
	return slices.DeleteFunc(routes, func(route *route) bool { return route.failure == nil })
}

func (pc *portCheck) rangesOf(host endpoint) mpi.PortRanges {
	if _, isLauncher := host.(*launcherEndpoint); isLauncher {
		return pc.ports.Launcher
	}
	return pc.ports.Ranks
}

// openFor lets a host open a port for the routes to it.
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

// callFrom lets a host connect to the targets of its routes.
func callFrom(ctx context.Context, from endpoint, routes []*route, expected challenge) {
	request := callRequest{challenge: expected}
	for _, route := range routes {
		request.Addresses = append(request.Addresses, net.JoinHostPort(route.to.addressFor(from), strconv.Itoa(route.port.Port)))
	}
	results, err := from.call(ctx, request)
	if err == nil && len(results.Causes) != len(routes) {
		err = &connectError{from.name(), protocol.Broken, errors.New("its agent sent an unexpected response")}
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

// failuresOf returns the failures in the order of the hosts.
func failuresOf(routes []*route) []*portFailure {
	var failures []*portFailure
	for _, route := range routes {
		if !slices.Contains(failures, route.failure) {
			failures = append(failures, route.failure)
		}
	}
	return failures
}

// inParallel calls a function for each host, in parallel.
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
// gate is done.
type launcherEndpoint struct {
	host string

	mutex sync.Mutex
	port  *openPort
}

func (le *launcherEndpoint) name() string { return le.host }

// addressFor is the local address of the connection to the worker.
func (le *launcherEndpoint) addressFor(other endpoint) string {
	return other.(*workerEndpoint).local
}

func (le *launcherEndpoint) open(_ context.Context, request portRequest) (openedPort, error) {
	le.mutex.Lock()
	defer le.mutex.Unlock()
	opened := openedPort{Ranges: request.Ranges}
	if le.port == nil {
		port, err := listenForCalls("", request.challenge, request.Ranges)
		if err != nil {
			opened.Cause = plainCause(err).Error()
			return opened, nil
		}
		le.port = port
		go port.serve()
	}
	opened.Port = le.port.number()
	return opened, nil
}

func (le *launcherEndpoint) close() { le.port.close() }

func (le *launcherEndpoint) call(ctx context.Context, request callRequest) (callResults, error) {
	return callAll(ctx, request), nil
}

// workerEndpoint is a worker that the launcher has logged in to.
type workerEndpoint struct {
	client  *client
	host    string
	session *ssh.Client
	// local and remote are the addresses of both ends.
	local, remote string
}

func (we *workerEndpoint) use(session *ssh.Client) {
	we.session = session
	we.local, _, _ = net.SplitHostPort(session.LocalAddr().String())
	we.remote, _, _ = net.SplitHostPort(session.RemoteAddr().String())
}

func (we *workerEndpoint) close() {
	if we.session != nil {
		_ = we.session.Close()
		we.session = nil
	}
}

func (we *workerEndpoint) name() string { return we.host }

func (we *workerEndpoint) addressFor(endpoint) string { return we.remote }

func (we *workerEndpoint) open(ctx context.Context, request portRequest) (openedPort, error) {
	var opened openedPort
	err := we.ask(ctx, openPortRequest, request, &opened)
	return opened, err
}

func (we *workerEndpoint) call(ctx context.Context, request callRequest) (callResults, error) {
	var results callResults
	err := we.ask(ctx, callPortsRequest, request, &results)
	return results, err
}

// ask sends a request and reads the response. If the connection is closed, for example
// because the container restarted while the gate waited for others, it logs in again.
func (we *workerEndpoint) ask(ctx context.Context, name string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*attemptTimeout)
	defer cancel()
	if we.session == nil {
		session, _, err := we.client.connect(ctx, we.host, we.client.port)
		if err != nil {
			return err
		}
		we.use(session)
	}
	payload, err := json.Marshal(request)
	if err != nil {
		return err
	}
	session := we.session
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	accepted, reply, err := session.SendRequest(name, true, payload)
	if err == nil && !accepted {
		err = errors.New("its agent refuses the request")
	}
	if err == nil {
		err = json.Unmarshal(reply, answer)
	}
	if err != nil {
		we.close()
		return &connectError{we.host, protocol.Broken, err}
	}
	return nil
}
