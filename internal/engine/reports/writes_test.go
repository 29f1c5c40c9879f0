// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"fmt"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)

// play reports for jobs at a rate for a time, asks as often as Due says, and counts the
// writes of each job by second.
func play(jobs int, every, lasts time.Duration) map[string][]time.Duration {
	var writes Writes[string]
	written := map[string][]time.Duration{}
	for elapsed := time.Duration(0); elapsed < lasts; elapsed += every {
		now := start.Add(elapsed)
		for i := range jobs {
			writes.Add(fmt.Sprintf("job-%04d", i), now)
		}
		for next := now; !next.IsZero() && next.Before(now.Add(every)); {
			due, later := writes.Due(next)
			for _, job := range due {
				written[job] = append(written[job], next.Sub(start))
			}
			next = later
		}
	}
	return written
}

func TestWritesOfOneJob(t *testing.T) {
	written := play(1, 100*time.Millisecond, time.Minute)["job-0000"]
	if len(written) != 6 || written[0] != 0 {
		t.Fatalf("writes at %v, want one at once and one in each 10 s", written)
	}
	for i := 1; i < len(written); i++ {
		if pause := written[i] - written[i-1]; pause < WritePause {
			t.Errorf("only %s between two writes", pause)
		}
	}
}

// A thousand jobs that report every second share 20 writes a second, and none is left out.
func TestWritesOfManyJobs(t *testing.T) {
	written := play(1000, time.Second, 2*time.Minute)
	perSecond := map[int]int{}
	for job, times := range written {
		if len(times) < 2 {
			t.Errorf("%s was written at %v only", job, times)
		}
		for _, at := range times {
			perSecond[int(at/time.Second)]++
		}
	}
	if len(written) != 1000 {
		t.Errorf("%d jobs were written, want all", len(written))
	}
	for second, count := range perSecond {
		// The first second may use what was saved up.
		if allowed := WritesPerSecond + 1; count > allowed && second > 0 || count > 2*WritesPerSecond {
			t.Errorf("%d writes in second %d", count, second)
		}
	}
}

func TestNothingToWrite(t *testing.T) {
	var writes Writes[string]
	if due, next := writes.Due(start); len(due) > 0 || !next.IsZero() {
		t.Errorf("due %v, next %s", due, next)
	}
	writes.Add("job", start)
	writes.Forget("job")
	if due, next := writes.Due(start); len(due) > 0 || !next.IsZero() {
		t.Errorf("after it was forgotten: due %v, next %s", due, next)
	}
}

func TestInterval(t *testing.T) {
	for jobs, want := range map[int]time.Duration{0: 5 * time.Second, 1: 5 * time.Second, 100: 5 * time.Second, 200: 10 * time.Second, 1000: 50 * time.Second, 100000: 5 * time.Minute} {
		if got := Interval(jobs); got != want {
			t.Errorf("%d jobs report every %s, want %s", jobs, got, want)
		}
	}
}
