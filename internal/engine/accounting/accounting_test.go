// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

var start = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func step(name training.TimelineStep, seconds int) training.TimelineEntry {
	return training.TimelineEntry{Step: name, Time: metav1.NewTime(at(seconds))}
}

func TestOf(t *testing.T) {
	scheduled, reached := step(training.StepScheduled, 10), step(training.StepWorkersReached, 15)
	for name, test := range map[string]struct {
		timeline []training.TimelineEntry
		finished time.Time
		// want are the seconds of waiting, idle and running, an hour after the submission.
		want [3]int
		now  State
	}{
		"new":                       {nil, time.Time{}, [3]int{3600, 0, 0}, Waiting},
		"submitted later":           {[]training.TimelineEntry{step(training.StepSubmitted, 100)}, time.Time{}, [3]int{3500, 0, 0}, Waiting},
		"scheduled":                 {[]training.TimelineEntry{scheduled}, time.Time{}, [3]int{10, 3590, 0}, Idle},
		"workers reached":           {[]training.TimelineEntry{scheduled, reached}, time.Time{}, [3]int{10, 5, 3585}, Running},
		"first rank":                {[]training.TimelineEntry{scheduled, reached, step(training.StepFirstRankUp, 16)}, time.Time{}, [3]int{10, 6, 3584}, Running},
		"finished":                  {[]training.TimelineEntry{scheduled, reached, step(training.StepFinished, 100)}, at(101), [3]int{10, 5, 85}, Running},
		"finished without the step": {[]training.TimelineEntry{scheduled}, at(100), [3]int{10, 90, 0}, Idle},
		"failed without a node":     {nil, at(100), [3]int{100, 0, 0}, Waiting},
		"times that go backwards":   {[]training.TimelineEntry{scheduled, step(training.StepWorkersReached, 5), step(training.StepFinished, 100)}, time.Time{}, [3]int{10, 0, 95}, Running},
	} {
		periods := Of(test.timeline, start, test.finished, at(3600))
		got := [3]int{}
		for i, state := range States {
			got[i] = int(periods[state].Length().Seconds())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if state := Now(test.timeline); state != test.now {
			t.Errorf("%s: %s, want %s", name, state, test.now)
		}
	}
}

func TestWithin(t *testing.T) {
	period := Period{at(10), at(20)}
	for name, test := range map[string]struct{ from, to, want int }{
		"around": {0, 30, 10}, "inside": {12, 15, 3}, "the start": {0, 12, 2}, "the end": {18, 30, 2}, "before": {0, 5, 0}, "after": {25, 30, 0},
	} {
		if got := int(period.Within(at(test.from), at(test.to)).Length().Seconds()); got != test.want {
			t.Errorf("%s: %d s, want %d s", name, got, test.want)
		}
	}
}
