// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"cmp"
	"slices"
	"time"
)

const (
	// WritePause is the time between two writes of a job's status because of reports.
	WritePause = 10 * time.Second
	// WritesPerSecond is how many such writes all jobs together cause.
	WritesPerSecond = 20
	// MinInterval and MaxInterval are the limits of the time between two reports of a job.
	MinInterval = 5 * time.Second
	MaxInterval = 5 * time.Minute
)

// Writes decides when the status of a job may be written because of reports. K identifies a
// job. The zero value is ready to use.
type Writes[K cmp.Ordered] struct {
	// waiting are the jobs with something to write, and since when.
	waiting map[K]time.Time
	// last is when each job was last written.
	last map[K]time.Time
	// budget is the number of writes that are allowed at the time asOf.
	budget float64
	asOf   time.Time
}

// Add notes that the status of a job should be written.
func (w *Writes[K]) Add(job K, now time.Time) {
	if w.waiting == nil {
		w.waiting, w.last = map[K]time.Time{}, map[K]time.Time{}
		w.budget, w.asOf = WritesPerSecond, now
	}
	if _, waits := w.waiting[job]; !waits {
		w.waiting[job] = now
	}
}

// Forget drops a job.
func (w *Writes[K]) Forget(job K) {
	delete(w.waiting, job)
	delete(w.last, job)
}

// Due returns the jobs to write now, those that have waited longest first, and when to ask
// again; the zero time if nothing waits.
func (w *Writes[K]) Due(now time.Time) (due []K, next time.Time) {
	if len(w.waiting) == 0 {
		return nil, time.Time{}
	}
	w.budget = min(w.budget+max(now.Sub(w.asOf), 0).Seconds()*WritesPerSecond, WritesPerSecond)
	w.asOf = now
	for _, job := range w.byAge() {
		allowed := w.allowedAt(job)
		switch {
		case allowed.After(now):
			next = earliest(next, allowed)
		case w.budget < 1:
			next = earliest(next, now.Add(time.Duration((1-w.budget)/WritesPerSecond*float64(time.Second))+time.Millisecond))
		default:
			w.budget--
			w.last[job] = now
			delete(w.waiting, job)
			due = append(due, job)
		}
	}
	return due, next
}

// allowedAt is when a job may be written. A job that was never written may at once.
func (w *Writes[K]) allowedAt(job K) time.Time {
	if last, written := w.last[job]; written {
		return last.Add(WritePause)
	}
	return w.waiting[job]
}

func (w *Writes[K]) byAge() []K {
	jobs := make([]K, 0, len(w.waiting))
	for job := range w.waiting {
		jobs = append(jobs, job)
	}
	slices.SortFunc(jobs, func(a, b K) int { return cmp.Or(w.waiting[a].Compare(w.waiting[b]), cmp.Compare(a, b)) })
	return jobs
}

func earliest(one, other time.Time) time.Time {
	if one.IsZero() || other.Before(one) {
		return other
	}
	return one
}

// Interval is how often each of so many jobs should report: as often as all of them can be
// written.
func Interval(jobs int) time.Duration {
	return min(max(time.Duration(jobs)*time.Second/WritesPerSecond, MinInterval), MaxInterval)
}
