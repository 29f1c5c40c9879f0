package initializer

import (
	"context"
	"math/rand/v2"
	"time"
)

// timing is how long what may take.
type timing struct {
	// patience is how long a download may go without a byte.
	maxIdle time.Duration
	// firstPatience is how long a server may take to answer at all. It is shorter:
	// one that was never reached is more likely a wrong address than a passing fault.
	maxFirstResponse time.Duration
	// stall is how long a connection may be silent.
	stall time.Duration
	// pause after the first failure; it doubles from try to try.
	pause, maxPause time.Duration
	// report is the time between two lines of progress.
	report time.Duration
}

func defaultTiming() timing {
	return timing{
		maxIdle: 5 * time.Minute, maxFirstResponse: time.Minute, stall: time.Minute,
		pause: time.Second, maxPause: 15 * time.Second, report: 5 * time.Second,
	}
}

const (
	// mostDamages is how often the same file may arrive wrong.
	maxCorrupt = 3
	// mostGranted is how long servers may send us away in a row.
	maxServerWait = 30 * time.Minute
)

// persist tries until it works, until there is no hope, or until nothing has come
// of it for as long as the patience lasts. position says how far it has got.
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
		// Not all at once: many downloads fail together when a server does.
		wait := pause/2 + rand.N(pause/2+1)
		if failure.after > 0 {
			wait = failure.after + rand.N(pause+1)
			// The server said when to come back, so this is no time without hope;
			// but it cannot say so for ever.
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
