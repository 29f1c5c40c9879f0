// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"math/rand/v2"
	"time"
)

// timing has timeouts and intervals.
type timing struct {
	// maxIdle is how long a download may receive nothing.
	maxIdle time.Duration
	// maxFirstResponse is how long a server may be unreachable at the start. It is
	// shorter: a server that was never reached more likely has a wrong address than a
	// temporary failure.
	maxFirstResponse time.Duration
	// stall is how long a connection may receive nothing.
	stall time.Duration
	// pause after the first failure; it doubles with each retry.
	pause, maxPause time.Duration
	// report is the interval of progress lines.
	report time.Duration
}

func defaultTiming() timing {
	return timing{
		maxIdle: 5 * time.Minute, maxFirstResponse: time.Minute, stall: time.Minute,
		pause: time.Second, maxPause: 15 * time.Second, report: 5 * time.Second,
	}
}

const (
	// maxCorrupt is how often the same file may be corrupt.
	maxCorrupt = 3
	// maxServerWait is how long servers may make us wait in total, without progress.
	maxServerWait = 30 * time.Minute
)

// retry calls try until it succeeds, fails permanently, or makes no progress for maxIdle.
// position returns the progress.
func retry(ctx context.Context, timing timing, maxIdle time.Duration, logf func(string, ...any), position func() int64, try func() error) error {
	since, reached, corrupt, pause, serverWait := time.Now(), position(), 0, timing.pause, time.Duration(0)
	for {
		err := try()
		failure, explained := asFailure(err)
		if ctx.Err() != nil && err != nil {
			return context.Cause(ctx)
		}
		if err == nil || !explained || !failure.temporary {
			return err
		}
		if failure.corrupt {
			if corrupt++; corrupt >= maxCorrupt {
				return failure
			}
		} else if now := position(); now > reached {
			since, reached, pause, serverWait = time.Now(), now, timing.pause, 0
		}
		// With jitter: many downloads fail together when a server does.
		wait := pause/2 + rand.N(pause/2+1)
		if failure.after > 0 {
			wait = failure.after + rand.N(pause+1)
			// A wait that the server requested does not count as idle time, up to
			// maxServerWait.
			if serverWait += wait; serverWait <= maxServerWait {
				since = since.Add(wait)
			}
		}
		if time.Since(since)+wait > maxIdle {
			return failure
		}
		logf("%s; retrying in %s", failure.What, wait.Round(100*time.Millisecond))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		pause = min(2*pause, timing.maxPause)
	}
}
