// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

const (
	// firstLook is when ranks are looked for first, so that the start of MPI is not slowed
	// down. Then the pause doubles up to the interval.
	firstLook = 2 * time.Second
	// defaultInterval, minInterval and maxInterval are between two messages.
	defaultInterval = 10 * time.Second
	minInterval     = time.Second
	maxInterval     = 300 * time.Second
	// finalPatience is how long the end of a job may be delayed by its last message.
	finalPatience = time.Second
)

// reporter sends what the ranks do to the operator while the command runs. A job runs and
// ends in the same way if that fails.
type reporter struct {
	collector *collector
	output    *outputWatch
	poster    *poster
	// hasLogged: the first failure is logged, and no other.
	hasLogged bool
	// hosts are those of the last message that the operator has accepted.
	hosts    []protocol.Host
	hasFound bool
	hasSent  bool
	// kept are the metrics over time, and isRecalled is set if the operator asks for them.
	kept       keptCurves
	isRecalled bool
}

// newReporter returns nil if the job does not report.
func (l *launch) newReporter() *reporter {
	r := &reporter{}
	poster, err := newPoster()
	if errors.Is(err, errNotConfigured) {
		return nil
	}
	var caller *client
	hosts := l.hosts
	if l.imageSSH {
		hosts = nil // Only the agent knows the ranks of a host.
	} else if err == nil {
		caller, err = newClient(launchUser + l.id)
	}
	if err != nil {
		r.log(err)
		return nil
	}
	output, err := newOutputWatch()
	if err != nil {
		r.log(err)
	}
	r.poster, r.output, r.collector = poster, output, newCollector(l.self, caller, hosts)
	return r
}

// watch adds a writer that reads the progress in a stream.
func (r *reporter) watch(stream io.Writer, keep *tail) []io.Writer {
	writers := []io.Writer{stream, keep}
	if r != nil {
		writers = append(writers, r.output.writer())
	}
	return writers
}

func (r *reporter) log(err error) {
	if !r.hasLogged {
		r.hasLogged = true
		fmt.Fprintf(os.Stderr, "trireme: cannot report progress: %v\n", err)
	}
}

// start reports until stop is called. stop returns at once; the channel that it returns is
// closed when the last message was sent, or could not be sent in time.
func (r *reporter) start() (stop func() <-chan struct{}) {
	finished := make(chan struct{})
	if r == nil {
		close(finished)
		return func() <-chan struct{} { return finished }
	}
	ctx, cancel := context.WithCancel(context.Background())
	looped := make(chan struct{})
	go func() {
		defer close(looped)
		r.loop(ctx)
	}()
	return func() <-chan struct{} {
		cancel()
		go func() {
			defer close(finished)
			final, done := context.WithTimeout(context.Background(), finalPatience)
			defer done()
			select {
			case <-looped:
				r.finish(final)
			case <-final.Done():
			}
		}()
		return finished
	}
}

func (r *reporter) loop(ctx context.Context) {
	pause, examine := firstLook, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		a := r.look(ctx, examine)
		if ctx.Err() != nil {
			return
		}
		if !r.hasFound {
			pause = min(2*pause, defaultInterval)
			continue
		}
		interval := defaultInterval
		interval, examine = r.send(ctx, a, interval)
		// Jobs that were created together do not report together.
		interval += rand.N(interval/10 + 1)
		pause = max(interval-time.Since(began), minInterval/2)
	}
}

// look collects a message.
func (r *reporter) look(ctx context.Context, examine bool) *protocol.Activity {
	hosts := r.collector.collect(ctx, examine)
	// The launcher itself is only a host of the job if it runs ranks.
	if last := len(hosts) - 1; len(hosts[last].Ranks) == 0 && last > 0 {
		hosts = hosts[:last]
	}
	a := &protocol.Activity{Time: time.Now(), Hosts: hosts, Examined: examine}
	r.output.addTo(a)
	r.hasFound = r.hasFound || a.Progress != nil || slices.ContainsFunc(hosts, func(host protocol.Host) bool { return len(host.Ranks) > 0 })
	return a
}

// send sends a message, and returns when to send the next one.
func (r *reporter) send(ctx context.Context, a *protocol.Activity, interval time.Duration) (next time.Duration, examine bool) {
	r.recall(a)
	reply, err := r.poster.post(ctx, a)
	if err != nil {
		if ctx.Err() == nil {
			r.log(err)
		}
		return interval, false
	}
	r.hasSent, r.hosts, r.isRecalled = true, a.Hosts, reply.Recall
	r.kept.add(reply.Newest)
	if reply.IntervalSeconds > 0 {
		interval = min(max(time.Duration(reply.IntervalSeconds)*time.Second, minInterval), maxInterval)
	}
	return interval, reply.Examine
}

// recall adds what the operator asks for: metrics over time, which it lost when it was
// restarted.
func (r *reporter) recall(a *protocol.Activity) {
	if r.isRecalled {
		a.Kept = r.kept.all()
	}
}

// finish sends the last message.
func (r *reporter) finish(ctx context.Context) {
	defer r.poster.close()
	a := &protocol.Activity{Time: time.Now(), Hosts: r.hosts, Final: true}
	r.output.addTo(a)
	r.recall(a)
	if r.hasSent || a.Progress != nil {
		// If the operator does not answer, it learns of the end from the pod.
		_, _ = r.poster.post(ctx, a)
	}
}
