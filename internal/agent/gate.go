package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// gateTimeout is how long workers may take to be reached once all of them run.
	gateTimeout = 60 * time.Second
	// gateParallel bounds how many hosts are tried at a time.
	gateParallel = 128
)

// gate holds a launch back until every worker can be reached.
type gate struct {
	client *client
	// clock is the file that says since when all workers run; without one the
	// time starts at once.
	clock   string
	timeout time.Duration
}

// passage is how a gate was passed, or not.
type passage struct {
	unreached []record
	// dns and connect are the longest of all hosts.
	dns, connect time.Duration
}

func (gate *gate) pass(ctx context.Context, hosts []string) passage {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go gate.closeInTime(ctx, cancel)
	turns := make(chan struct{}, gateParallel)
	takeTurn := func() func() {
		turns <- struct{}{}
		return func() { <-turns }
	}
	var mutex sync.Mutex
	var tries sync.WaitGroup
	var result passage
	for _, host := range hosts {
		tries.Go(func() {
			session, took, err := gate.client.reach(ctx, host, gate.client.port, takeTurn)
			if session != nil {
				_ = session.Close()
			}
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				result.unreached = append(result.unreached, failed(host, err))
				return
			}
			result.dns, result.connect = max(result.dns, took.dns), max(result.connect, took.connect)
		})
	}
	tries.Wait()
	return result
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
