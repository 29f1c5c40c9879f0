// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// gateTimeout is how long it may take to reach all workers once all of them are running.
	gateTimeout = 60 * time.Second
	// gateParallel limits the parallel attempts.
	gateParallel = 128
	// maxRing is the maximum size of a ring of hosts for the port check.
	maxRing = 64
	// maxKept is how many connections stay open until the other hosts of their ring are
	// reached. More are closed, and opened again for the check.
	maxKept = 2 * maxRing
)

// gate delays a launch until every worker can be reached.
type gate struct {
	client *client
	// clock is the file with the time since when all workers are running. Without it, the
	// timeout starts at once.
	clock   string
	timeout time.Duration
	// ports are checked once workers are reached; nil checks none.
	ports *portCheck
	// kept counts the connections that stay open for the check.
	kept atomic.Int32
}

// gateResult is the result of a gate.
type gateResult struct {
	unreached []record
	// blocked are the failed connections between hosts.
	blocked []*portFailure
	// dns and connect are the maximum over all hosts; ports is the duration of the port
	// check.
	dns, connect, ports time.Duration
}

func (g *gate) pass(ctx context.Context, hosts []string) gateResult {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	go g.watchTimeout(limited, cancel)
	if g.ports != nil {
		defer g.ports.launcher.close()
	}
	turns := make(chan struct{}, gateParallel)
	var mutex sync.Mutex
	var rings sync.WaitGroup
	var result gateResult
	for i, ring := range ringsOf(unique(hosts)) {
		rings.Go(func() {
			passed := g.passRing(ctx, limited, ring, i == 0, turns)
			mutex.Lock()
			defer mutex.Unlock()
			result.join(passed)
		})
	}
	rings.Wait()
	return result
}

// ringsOf splits hosts into rings of nearly the same size. Each ring is checked, and its
// connections are closed, as soon as its own hosts are reached: a thousand open
// connections would need more memory than the gate has.
func ringsOf(hosts []string) [][]string {
	count := (len(hosts) + maxRing - 1) / maxRing
	if count == 0 {
		return nil
	}
	return slices.Collect(slices.Chunk(hosts, (len(hosts)+count-1)/count))
}

// unique removes duplicates: a host may be in the hostfile more than once.
func unique(hosts []string) []string {
	known := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		isKnown := known[host]
		known[host] = true
		return isKnown
	})
}

// passRing logs in to the hosts of a ring, and then checks the ports between them.
func (g *gate) passRing(ctx, limited context.Context, hosts []string, isFirst bool, turns chan struct{}) gateResult {
	defer g.kept.Add(-int32(len(hosts)))
	workers := make([]*workerEndpoint, len(hosts))
	for i, host := range hosts {
		workers[i] = &workerEndpoint{client: g.client, host: host}
		defer workers[i].close()
	}
	result := g.reachAll(limited, workers, turns)
	if g.ports == nil || len(result.unreached) > 0 {
		return result
	}
	began := time.Now()
	result.add(g.ports.run(ctx, limited, workers, isFirst))
	result.ports = time.Since(began)
	return result
}

// reachAll logs in to all workers. Connections stay open if ports are checked.
func (g *gate) reachAll(ctx context.Context, workers []*workerEndpoint, turns chan struct{}) gateResult {
	takeTurn := func() func() {
		turns <- struct{}{}
		return func() { <-turns }
	}
	var mutex sync.Mutex
	var tries sync.WaitGroup
	var result gateResult
	for _, worker := range workers {
		tries.Go(func() {
			session, took, err := g.client.reach(ctx, worker.host, g.client.port, takeTurn)
			if session != nil {
				worker.use(session)
			}
			if g.kept.Add(1) > maxKept || g.ports == nil {
				worker.close()
			}
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				result.unreached = append(result.unreached, failureRecord(worker.host, err))
				return
			}
			result.dns, result.connect = max(result.dns, took.dns), max(result.connect, took.connect)
		})
	}
	tries.Wait()
	return result
}

// join adds the result of another ring.
func (p *gateResult) join(other gateResult) {
	p.unreached, p.blocked = append(p.unreached, other.unreached...), append(p.blocked, other.blocked...)
	p.dns, p.connect, p.ports = max(p.dns, other.dns), max(p.connect, other.connect), max(p.ports, other.ports)
}

// add adds failures of the port check: hosts that were lost meanwhile, and blocked ports.
func (p *gateResult) add(failures []*portFailure) {
	for _, failure := range failures {
		switch {
		case failure.lost == nil:
			p.blocked = append(p.blocked, failure)
		case !slices.ContainsFunc(p.unreached, func(known record) bool { return known.Host == failure.from }):
			p.unreached = append(p.unreached, failureRecord(failure.from, failure.lost))
		}
	}
}

// watchTimeout gives up once all workers have been running for the timeout. A worker that
// still pulls its image looks like a blocked port, so there is no limit here before all
// of them are running: the operator has one.
func (g *gate) watchTimeout(ctx context.Context, giveUp func()) {
	since := time.Now()
	for g.clock != "" {
		running, err := runningSince(g.clock)
		if err == nil {
			// A launcher that starts late has as much time as one that waited.
			since = later(since, running)
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(250 * time.Millisecond):
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(since.Add(g.timeout))):
		giveUp()
	}
}

func later(one, other time.Time) time.Time {
	if one.After(other) {
		return one
	}
	return other
}

var errWorkersNotRunning = errors.New("not all workers are running yet")

func runningSince(clock string) (time.Time, error) {
	content, err := os.ReadFile(clock)
	if err != nil {
		return time.Time{}, err
	}
	text := strings.TrimSpace(string(content))
	if text == "" {
		return time.Time{}, errWorkersNotRunning
	}
	since, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", clock, err)
	}
	return since, nil
}
