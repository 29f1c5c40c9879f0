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
	// gateTimeout is how long workers may take to be reached once all of them run.
	gateTimeout = 60 * time.Second
	// gateParallel bounds how many hosts are tried at a time.
	gateParallel = 128
	// maxRing is how many hosts are checked together.
	maxRing = 64
	// maxKept is how many connections wait for the other hosts of their ring. More are
	// closed, and opened again for the check.
	maxKept = 2 * maxRing
)

// gate holds a launch back until every worker can be reached.
type gate struct {
	client *client
	// clock is the file that says since when all workers run; without one the
	// time starts at once.
	clock   string
	timeout time.Duration
	// ports are checked once workers are reached; nil checks none.
	ports *portCheck
	// kept counts the connections that are kept for that.
	kept atomic.Int32
}

// passage is how a gate was passed, or not.
type passage struct {
	unreached []record
	// blocked are the connections between hosts that fail.
	blocked []*portFailure
	// dns and connect are the longest of all hosts; ports is the check of all.
	dns, connect, ports time.Duration
}

func (gate *gate) pass(ctx context.Context, hosts []string) passage {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	go gate.closeInTime(limited, cancel)
	if gate.ports != nil {
		defer gate.ports.launcher.close()
	}
	turns := make(chan struct{}, gateParallel)
	var mutex sync.Mutex
	var rings sync.WaitGroup
	var result passage
	for i, ring := range ringsOf(withoutRepetition(hosts)) {
		rings.Go(func() {
			passed := gate.passRing(ctx, limited, ring, i == 0, turns)
			mutex.Lock()
			defer mutex.Unlock()
			result.join(passed)
		})
	}
	rings.Wait()
	return result
}

// ringsOf splits hosts into parts of nearly the same size. Each is checked, and its
// connections are closed, as soon as its own hosts are reached: a thousand connections
// would need more memory than the gate has.
func ringsOf(hosts []string) [][]string {
	count := (len(hosts) + maxRing - 1) / maxRing
	if count == 0 {
		return nil
	}
	return slices.Collect(slices.Chunk(hosts, (len(hosts)+count-1)/count))
}

// withoutRepetition: a host may be in the hostfile more than once.
func withoutRepetition(hosts []string) []string {
	known := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		isKnown := known[host]
		known[host] = true
		return isKnown
	})
}

// passRing logs in to the hosts of a ring, and then checks the ports between them.
func (gate *gate) passRing(ctx, limited context.Context, hosts []string, isFirst bool, turns chan struct{}) passage {
	defer gate.kept.Add(-int32(len(hosts)))
	workers := make([]*workerEndpoint, len(hosts))
	for i, host := range hosts {
		workers[i] = &workerEndpoint{client: gate.client, host: host}
		defer workers[i].close()
	}
	result := gate.reachAll(limited, workers, turns)
	if gate.ports == nil || len(result.unreached) > 0 {
		return result
	}
	began := time.Now()
	result.add(gate.ports.run(ctx, limited, workers, isFirst))
	result.ports = time.Since(began)
	return result
}

// reachAll logs in to all workers. Their connections are kept if ports are checked.
func (gate *gate) reachAll(ctx context.Context, workers []*workerEndpoint, turns chan struct{}) passage {
	takeTurn := func() func() {
		turns <- struct{}{}
		return func() { <-turns }
	}
	var mutex sync.Mutex
	var tries sync.WaitGroup
	var result passage
	for _, worker := range workers {
		tries.Go(func() {
			session, took, err := gate.client.reach(ctx, worker.host, gate.client.port, takeTurn)
			if session != nil {
				worker.use(session)
			}
			if gate.kept.Add(1) > maxKept || gate.ports == nil {
				worker.close()
			}
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				result.unreached = append(result.unreached, failed(worker.host, err))
				return
			}
			result.dns, result.connect = max(result.dns, took.dns), max(result.connect, took.connect)
		})
	}
	tries.Wait()
	return result
}

// join adds what happened in another ring.
func (result *passage) join(other passage) {
	result.unreached, result.blocked = append(result.unreached, other.unreached...), append(result.blocked, other.blocked...)
	result.dns, result.connect, result.ports = max(result.dns, other.dns), max(result.connect, other.connect), max(result.ports, other.ports)
}

// add tells hosts that were lost during the check from ports that are blocked.
func (result *passage) add(failures []*portFailure) {
	for _, failure := range failures {
		switch {
		case failure.lost == nil:
			result.blocked = append(result.blocked, failure)
		case !slices.ContainsFunc(result.unreached, func(known record) bool { return known.Host == failure.from }):
			result.unreached = append(result.unreached, failed(failure.from, failure.lost))
		}
	}
}

// closeInTime gives up once all workers have been running for long enough. A
// worker that still pulls its image looks like a blocked port, so before all of
// them run there is no limit here: the operator has one.
func (gate *gate) closeInTime(ctx context.Context, giveUp func()) {
	since := time.Now()
	for gate.clock != "" {
		running, err := runningSince(gate.clock)
		if err == nil {
			// A launcher that came late has as much time as one that waited.
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
	case <-time.After(time.Until(since.Add(gate.timeout))):
		giveUp()
	}
}

func later(one, other time.Time) time.Time {
	if one.After(other) {
		return one
	}
	return other
}

var errNotYet = errors.New("not all workers run yet")

func runningSince(clock string) (time.Time, error) {
	content, err := os.ReadFile(clock)
	if err != nil {
		return time.Time{}, err
	}
	text := strings.TrimSpace(string(content))
	if text == "" {
		return time.Time{}, errNotYet
	}
	since, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", clock, err)
	}
	return since, nil
}
