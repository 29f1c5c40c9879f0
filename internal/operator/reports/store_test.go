// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/activity"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
)

type stored struct {
	*Store
	clock    *testingclock.FakeClock
	notified chan Key
	registry *prometheus.Registry
}

// count is the sum of a counter over all labels.
func (s *stored) count(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func newStored(t *testing.T) *stored {
	t.Helper()
	clock, registry := testingclock.NewFakeClock(now), prometheus.NewRegistry()
	store, err := NewStore(clock, registry)
	if err != nil {
		t.Fatal(err)
	}
	s := &stored{Store: store, clock: clock, notified: make(chan Key, 1000), registry: registry}
	store.OnChange(func(key Key) { s.notified <- key }, func(Key, activity.Straggler) {})
	return s
}

var first = Start{Key: Key{Kind: job.KindTrainJob, Namespace: "team", Name: "bert"}, UID: "1"}

func stepOf(step int64) *protocol.Progress { return &protocol.Progress{Step: &step, Of: 100} }

func spinning() *protocol.Activity {
	report := &protocol.Activity{Examined: true, Hosts: []protocol.Host{{Name: "a"}}}
	for rank := range 4 {
		report.Hosts[0].Ranks = append(report.Hosts[0].Ranks, protocol.Rank{Rank: rank, PID: rank + 10, State: "R", Started: now, Doing: protocol.SpinningInMPI})
	}
	return report
}

func TestPublishedAtMostEveryTenSeconds(t *testing.T) {
	s := newStored(t)
	s.AddProgress(first, stepOf(1))
	s.AddProgress(first, stepOf(2))
	if got := *s.Published("1", false).TrainerStatus.Step; len(s.notified) != 1 || got != 1 {
		t.Fatalf("%d notifications, step %d; want one, for step 1", len(s.notified), got)
	}
	// The status of a job that finishes shows everything.
	if got := *s.Published("1", true).TrainerStatus.Step; got != 2 {
		t.Errorf("the latest step is %d", got)
	}
	s.clock.Step(10*time.Second + time.Millisecond)
	<-s.notified
	if key := <-s.notified; key != first.Key || *s.Published("1", false).TrainerStatus.Step != 2 {
		t.Errorf("%v was notified, with %+v", key, s.Published("1", false).TrainerStatus)
	}
}

// A job that repeats its lines and computes nothing new causes no write, whatever the clock
// says, and its progress keeps its time.
func TestSilenceCausesNoWrite(t *testing.T) {
	s := newStored(t)
	output, err := activity.NewOutput("", false)
	if err != nil {
		t.Fatal(err)
	}
	reportsSent := 0
	report := func() {
		a := spinning()
		// An agent that was restarted measures the start of its ranks again.
		reportsSent++
		a.Hosts[0].Ranks[0].Started = now.Add(time.Duration(reportsSent%7-3) * time.Microsecond)
		a.Progress = output.Progress(s.clock.Now())
		s.AddActivity(first, a)
	}
	for step := range 2 {
		output.Line(fmt.Appendf(nil, `trireme: {"step": %d, "of": 100, "loss": 0.5}`, step), s.clock.Now())
		report()
		s.clock.Step(time.Minute)
	}
	<-s.notified
	s.publish()
	for len(s.notified) > 0 {
		<-s.notified
	}
	before := s.Published("1", true)
	if before.TrainerStatus.EstimatedRemainingSeconds == nil {
		t.Fatalf("no remaining time: %+v", before.TrainerStatus)
	}
	for range 20 {
		report()
		s.clock.Step(time.Minute)
		s.publish()
	}
	if diff := cmp.Diff(before, s.Published("1", true)); diff != "" || len(s.notified) != 0 {
		t.Errorf("%d notifications, reported (-before +after):\n%s", len(s.notified), diff)
	}
	if points := len(s.Curves("1")[0].Points); points != 2 {
		t.Errorf("the curve has %d points, want 2", points)
	}
}

func TestHangIsFound(t *testing.T) {
	s := newStored(t)
	s.AddActivity(first, spinning())
	s.Configure("1", Settings{Hang: job.Hang{After: time.Minute}, Total: 4})
	for range 30 {
		s.clock.Step(5 * time.Second)
		s.AddActivity(first, spinning())
	}
	stalled := s.Published("1", true)
	if stalled.Stall == nil || stalled.Ranks.Running != 4 || stalled.Ranks.Total != 4 {
		t.Fatalf("%+v", stalled)
	}
	if count := s.count(t, "training_operator_stalls_total"); count != 1 {
		t.Errorf("%v stalls were counted, want 1", count)
	}
	// A program that reports by itself makes progress, though all its ranks spin.
	s.AddProgress(first, stepOf(5))
	s.AddActivity(first, spinning())
	if again := s.Published("1", true); again.Stall != nil || *again.TrainerStatus.Step != 5 {
		t.Errorf("after a step: %+v", again)
	}
}

// A line of the output that is repeated in each report does not hide what the program
// reports itself later.
func TestNewestProgressCounts(t *testing.T) {
	s := newStored(t)
	report := func() {
		a := spinning()
		a.Progress = stepOf(1)
		s.AddActivity(first, a)
	}
	report()
	s.Configure("1", Settings{Hang: job.Hang{After: time.Minute}, Total: 4})
	for step := range int64(30) {
		s.clock.Step(5 * time.Second)
		s.AddProgress(first, stepOf(2+step))
		report()
	}
	if got := s.Published("1", true); got.Stall != nil || *got.TrainerStatus.Step != 31 {
		t.Errorf("stall %+v, step %d; want none, step 31", got.Stall, *got.TrainerStatus.Step)
	}
	// A new line is newer than what was posted before.
	a := spinning()
	a.Progress = stepOf(40)
	s.AddActivity(first, a)
	if got := *s.Published("1", true).TrainerStatus.Step; got != 40 {
		t.Errorf("step %d, want 40", got)
	}
}

// The next leader has no reports from before, but the status.
func TestNextLeaderKeepsStall(t *testing.T) {
	s := newStored(t)
	hang := job.Hang{After: time.Minute}
	s.AddActivity(first, spinning())
	s.Configure("1", Settings{Hang: hang, Total: 4, Stalled: true})
	if got := s.Published("1", true); got.Stall != nil || got.Progressing {
		t.Errorf("after the first report: %+v, want neither a stall nor progress", got)
	}
	for range 30 {
		s.clock.Step(5 * time.Second)
		s.AddActivity(first, spinning())
		s.Configure("1", Settings{Hang: hang, Total: 4, Stalled: true})
	}
	if got := s.Published("1", true); got.Stall == nil || got.Progressing {
		t.Errorf("after two minutes: %+v, want a stall", got)
	}
	if count := s.count(t, "training_operator_stalls_total"); count != 0 {
		t.Errorf("%v stalls were counted; the last leader has counted it", count)
	}
	s.AddProgress(first, stepOf(5))
	s.AddActivity(first, spinning())
	if got := s.Published("1", true); got.Stall != nil || !got.Progressing {
		t.Errorf("after a step: %+v, want progress", got)
	}
	for range 30 {
		s.clock.Step(5 * time.Second)
		s.AddActivity(first, spinning())
	}
	if count := s.count(t, "training_operator_stalls_total"); count != 1 {
		t.Errorf("%v stalls were counted after the next one, want 1", count)
	}
}

// The metrics over time of a killed leader come back from the agent, which has kept them,
// whether the program has reported by itself or in its output.
func TestNextLeaderRestoresCurves(t *testing.T) {
	s := newStored(t)
	report := func(s *stored, kept []protocol.Curve, output string) protocol.ActivityReply {
		a := spinning()
		a.Kept = kept
		if output != "" {
			a.Progress = &protocol.Progress{Metrics: []protocol.Metric{{Name: "loss", Value: output}}}
		}
		s.clock.Step(5 * time.Second)
		return s.AddActivity(first, a)
	}
	var kept []protocol.Curve
	keep := func(reply protocol.ActivityReply) { kept = append(kept, reply.Newest...) }
	answer := report(s, nil, "3")
	if !answer.Recall {
		t.Error("the first answer does not ask for what the agent has kept")
	}
	keep(answer)
	if second := report(s, []protocol.Curve{}, "3"); second.Recall || len(second.Newest) > 0 {
		t.Errorf("the answer to a message without anything new is %+v", second)
	}
	s.clock.Step(time.Second)
	s.AddProgress(first, &protocol.Progress{Metrics: []protocol.Metric{{Name: "loss", Value: "2"}}})
	keep(report(s, nil, ""))
	if len(kept) != 2 {
		t.Fatalf("the agent was told to keep %+v, want two points", kept)
	}

	next := newStored(t)
	next.clock.SetTime(s.clock.Now())
	if reply := report(next, nil, "1"); !reply.Recall {
		t.Error("the next leader does not ask for what the agent has kept")
	}
	merged := []protocol.Curve{{Name: "loss", Points: []protocol.Point{kept[0].Points[0], kept[1].Points[0]}}}
	if reply := report(next, merged, "1"); reply.Recall {
		t.Error("the next leader asks again")
	}
	curves := next.Curves("1")
	if len(curves) != 1 || len(curves[0].Points) != 3 {
		t.Fatalf("curves %+v", curves)
	}
	for i, point := range curves[0].Points {
		if point.Value != float64(3-i) {
			t.Errorf("points %+v", curves[0].Points)
		}
	}
	if ranks, _ := next.Ranks("1"); ranks.Kept != nil {
		t.Error("what the agent has kept is twice in memory")
	}
}

// The start of the first rank stays when that rank has exited.
func TestFirstRankStays(t *testing.T) {
	s := newStored(t)
	s.AddActivity(first, spinning())
	later := spinning()
	for i := range later.Hosts[0].Ranks {
		later.Hosts[0].Ranks[i].Started = now.Add(time.Hour)
	}
	s.AddActivity(first, later)
	if got := s.Published("1", true).FirstRank; !got.Equal(now) {
		t.Errorf("the first rank was started at %s, want %s", got, now)
	}
}

func TestNewStartForgetsReports(t *testing.T) {
	s := newStored(t)
	s.AddProgress(first, stepOf(50))
	s.AddActivity(first, spinning())
	second := first
	second.Restart = 1
	s.AddActivity(second, spinning())
	if got := s.Published("1", true); got.Restart != 1 || got.TrainerStatus != nil {
		t.Errorf("the new start shows %+v", got.TrainerStatus)
	}
	s.Forget("1")
	if got := s.Published("1", true); got != nil {
		t.Errorf("after the deletion: %+v", got)
	}
}

// Jobs that report no more do not lengthen the interval of the others.
func TestIntervalCountsReportingJobs(t *testing.T) {
	s := newStored(t)
	interval := func(uid int) int {
		start := first
		start.UID = types.UID(fmt.Sprint(uid))
		return s.AddActivity(start, spinning()).IntervalSeconds
	}
	const jobs = 1000
	all := func() {
		for uid := range jobs {
			interval(uid)
		}
		s.clock.Step(countAge)
	}
	all()
	if got := interval(0); got != jobs/reports.WritesPerSecond {
		t.Errorf("%d jobs report every %d s, want %d", jobs, got, jobs/reports.WritesPerSecond)
	}
	for uid := 1; uid < jobs; uid++ {
		s.Finish(types.UID(fmt.Sprint(uid)))
	}
	s.clock.Step(countAge)
	if got := interval(0); got != int(reports.MinInterval.Seconds()) {
		t.Errorf("one job beside %d finished ones reports every %d s", jobs-1, got)
	}
	s = newStored(t)
	all()
	s.clock.Step(silentAfter)
	if got := interval(0); got != int(reports.MinInterval.Seconds()) {
		t.Errorf("one job beside %d suspended ones reports every %d s", jobs-1, got)
	}
}

// The launcher's last report may come after the status was written.
func TestFinishedJobIgnoresReports(t *testing.T) {
	s := newStored(t)
	s.AddActivity(first, spinning())
	s.Finish("1")
	s.clock.Step(time.Minute)
	s.AddActivity(first, spinning())
	s.AddProgress(first, stepOf(1))
	if len(s.notified) != 1 {
		t.Errorf("%d notifications, want that of the first report", len(s.notified))
	}
	if ranks, _ := s.Ranks("1"); ranks != nil || s.Published("1", true).TrainerStatus != nil {
		t.Errorf("a finished job has ranks %+v, progress %+v", ranks, s.Published("1", true).TrainerStatus)
	}
}

func TestFinishedJobKeepsCurves(t *testing.T) {
	s := newStored(t)
	s.AddProgress(first, &protocol.Progress{Metrics: []protocol.Metric{{Name: "loss", Value: "0.5"}}})
	s.AddActivity(first, spinning())
	s.Finish("1")
	if ranks, _ := s.Ranks("1"); ranks != nil {
		t.Error("a finished job has ranks")
	}
	if curves := s.Curves("1"); len(curves) != 1 || curves[0].Points[0].Value != 0.5 {
		t.Errorf("curves %+v", curves)
	}
	if got := s.Published("1", true).TrainerStatus.Metrics; len(got) != 1 || got[0] != (training.TrainerMetric{Name: "loss", Value: "0.5"}) {
		t.Errorf("metrics %+v", got)
	}
}
