// SPDX-License-Identifier: Apache-2.0

package activity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

const (
	interval = 10 * time.Second
	after    = 15 * time.Minute
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// doing is what one rank does all the time.
type doing struct {
	state    string
	doing    protocol.Doing
	waitsFor string
	// cpu is the share of a CPU that it uses, bytes what it reads in a second.
	cpu   float64
	bytes int64
	step  int64 // 0 if it reports none
}

var (
	computes = doing{state: "R", doing: protocol.Computing, cpu: 1}
	spins    = doing{state: "R", doing: protocol.SpinningInMPI, cpu: 1}
	sleeping = doing{state: "S", doing: protocol.Sleeping, waitsFor: "do_poll"}
	naps     = doing{state: "S", doing: protocol.Sleeping, waitsFor: "hrtimer_nanosleep"}
	isUnseen = doing{state: "R", cpu: 1}
	isHalted = doing{state: "T", doing: protocol.StoppedBySignal}
)

func (d doing) at(step int64) doing { d.step = step; return d }

// play is a job of which ranks 0 and 1 run on host a, 2 and 3 on host b, and so on.
type play struct {
	ranks []doing
	// change may change a report.
	change func(elapsed time.Duration, a *protocol.Activity)
}

// judge reports for a time and returns the last verdict, how many examinations were asked
// for, and when the job was first called stalled.
func (p play) judge(t *testing.T, lasts time.Duration, s Settings) (last Verdict, examinations int, stalledAt time.Duration) {
	t.Helper()
	h, examine := &History{}, false
	for elapsed := time.Duration(0); elapsed <= lasts; elapsed += interval {
		now := began.Add(elapsed)
		a := p.report(now, elapsed, examine)
		if p.change != nil {
			p.change(elapsed, a)
		}
		h.Add(now, a)
		last = Judge(h, now, s)
		if examine = last.NeedsExamination; examine {
			examinations++
		}
		if last.Stalled && stalledAt == 0 {
			stalledAt = elapsed
		}
	}
	return last, examinations, stalledAt
}

func (p play) report(now time.Time, elapsed time.Duration, examine bool) *protocol.Activity {
	a := &protocol.Activity{Time: now, Examined: examine}
	for i, d := range p.ranks {
		if i%2 == 0 {
			a.Hosts = append(a.Hosts, protocol.Host{Name: string(rune('a' + i/2))})
		}
		host := &a.Hosts[len(a.Hosts)-1]
		rank := protocol.Rank{Rank: i, PID: 100 + i, State: d.state, Started: began, CPUSeconds: d.cpu * elapsed.Seconds(), BytesRead: d.bytes * int64(elapsed.Seconds())}
		if d.step > 0 {
			rank.Step = &d.step
		}
		if examine {
			rank.Doing, rank.WaitsFor = d.doing, d.waitsFor
		}
		host.Ranks = append(host.Ranks, rank)
	}
	return a
}

func odd(rank int, d doing) OddRank {
	return OddRank{Rank: rank, Host: string(rune('a' + rank/2)), Doing: string(d.doing), WaitsFor: d.waitsFor}
}

// A host may be listed as unknown and with ranks, and more than
// once. Its ranks are the keys of a list in the status.
func TestUnknownHostIsNotedOnce(t *testing.T) {
	h := &History{}
	for i := range 100 {
		h.Add(began.Add(time.Duration(i)*interval), &protocol.Activity{Examined: true, Hosts: []protocol.Host{
			{Name: "a", Ranks: []protocol.Rank{{Rank: 0, State: "R", Doing: protocol.SpinningInMPI}}},
			{Name: "b", Unknown: "no answer", Ranks: []protocol.Rank{{Rank: 1, State: "R", Doing: protocol.SpinningInMPI}}},
			{Name: "b", Unknown: "no answer"},
		}})
	}
	got := Judge(h, began.Add(100*interval), Settings{After: time.Minute})
	if want := []OddRank{{Rank: 1, Host: "b", WaitsFor: "no answer"}}; !cmp.Equal(want, got.Odd) {
		t.Errorf("odd ranks %+v, want %+v", got.Odd, want)
	}
	if len(h.unknown) != 1 || len(h.unknown[0].ranks) != 1 {
		t.Errorf("%d unknown hosts, the first with %d ranks; want one with one", len(h.unknown), len(h.unknown[0].ranks))
	}
}

func unknownHostB(elapsed time.Duration, a *protocol.Activity) {
	if elapsed > time.Minute {
		a.Hosts[1] = protocol.Host{Name: "b", Unknown: "no answer"}
	}
}

// writesEvery lets the command write a line now and then.
func writesEvery(pause time.Duration) func(time.Duration, *protocol.Activity) {
	return func(elapsed time.Duration, a *protocol.Activity) {
		last := began.Add(elapsed.Truncate(pause))
		a.LastOutput = &last
	}
}

func TestStalledJobs(t *testing.T) {
	tests := map[string]struct {
		play
		wantOdd     []OddRank
		wantSerial  bool
		wantMessage string
	}{
		"a receive that nobody sends": {play: play{ranks: []doing{spins, spins, spins, spins}},
			wantMessage: "No progress for 15m: all 4 ranks wait in MPI, and none computes"},
		"a receive that sleeps": {play: play{ranks: []doing{sleeping, sleeping, sleeping, sleeping}},
			wantMessage: "all 4 ranks sleep and wait for each other"},
		"a stopped rank": {play: play{ranks: []doing{spins, spins, isHalted, spins}}, wantOdd: []OddRank{odd(2, isHalted)},
			wantMessage: "rank 2 on b is stopped by a signal; the other 3 ranks wait"},
		"a stopped rank beside ranks that cannot be examined": {play: play{ranks: []doing{isUnseen, isUnseen, isHalted, isUnseen}}, wantOdd: []OddRank{odd(2, isHalted)},
			wantMessage: "rank 2 on b is stopped by a signal"},
		"a stopped rank while others compute": {play: play{ranks: []doing{computes, computes, isHalted, spins}}, wantOdd: []OddRank{odd(2, isHalted)},
			wantMessage: "rank 2 on b is stopped by a signal"},
		"an endless loop": {play: play{ranks: []doing{spins, computes, spins, spins}}, wantOdd: []OddRank{odd(1, computes)}, wantSerial: true,
			wantMessage: "only rank 1 on a computes; the other 3 ranks wait"},
		"an endless loop while others sleep": {play: play{ranks: []doing{sleeping, computes}}, wantOdd: []OddRank{odd(1, computes)}, wantSerial: true,
			wantMessage: "only rank 1 on a computes; the other rank waits"},
		"a host that is slow": {play: play{ranks: []doing{spins, spins, computes, computes, spins, spins}},
			wantOdd: []OddRank{odd(2, computes), odd(3, computes)}, wantSerial: true, wantMessage: "only rank 2 on b, rank 3 on b compute; the other 4 ranks wait"},
		"one sleeps while others spin": {play: play{ranks: []doing{spins, spins, spins, naps}}, wantOdd: []OddRank{odd(3, naps)},
			wantMessage: "rank 3 on b sleeps in hrtimer_nanosleep; the other 3 ranks spin in MPI"},
		"one waits for something else": {play: play{ranks: []doing{sleeping, naps, sleeping, sleeping}}, wantOdd: []OddRank{odd(1, naps)},
			wantMessage: "rank 1 on a sleeps in hrtimer_nanosleep; the other 3 ranks wait for something else"},
		"one is a step behind": {play: play{ranks: []doing{spins.at(8), spins.at(8), spins.at(8), spins.at(7)}}, wantOdd: []OddRank{odd(3, spins)},
			wantMessage: "rank 3 on b is at step 7, other ranks are at step 8, and all wait"},
		"a process that has exited": {play: play{ranks: []doing{spins, {state: "Z"}, spins, spins}}, wantOdd: []OddRank{odd(1, doing{})},
			wantMessage: "rank 1 on a has exited"},
		"a host that does not answer": {play: play{ranks: []doing{spins, spins, spins, spins, spins, spins}, change: unknownHostB},
			wantOdd: []OddRank{odd(2, doing{waitsFor: "no answer"}), odd(3, doing{waitsFor: "no answer"})}, wantSerial: true,
			wantMessage: "b does not answer the launcher (no answer), and all ranks on other hosts wait"},
		"an endless loop on a busy machine, where every other examination fails": {play: play{ranks: []doing{spins, computes, spins, spins}, change: func(elapsed time.Duration, a *protocol.Activity) {
			if a.Examined && int(elapsed/(after/examinationParts))%2 == 0 {
				a.Hosts[1].Ranks[0].Doing = ""
			}
		}}, wantOdd: []OddRank{odd(1, computes)}, wantSerial: true, wantMessage: "only rank 1 on a computes; the other 3 ranks wait"},
		"lines until a moment": {play: play{ranks: []doing{spins, spins}, change: func(elapsed time.Duration, a *protocol.Activity) {
			writesEvery(time.Minute)(min(elapsed, 5*time.Minute), a)
		}}, wantMessage: "all 2 ranks wait in MPI"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, examinations, stalledAt := tc.judge(t, 30*time.Minute, Settings{After: after})
			if !got.Stalled || got.Serial != tc.wantSerial {
				t.Fatalf("stalled %t, serial %t, want a stalled job and serial %t: %+v", got.Stalled, got.Serial, tc.wantSerial, got)
			}
			if diff := cmp.Diff(tc.wantOdd, got.Odd, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("odd ranks (-want +got):\n%s", diff)
			}
			if !strings.Contains(got.Message, tc.wantMessage) {
				t.Errorf("the message is %q, want %q in it", got.Message, tc.wantMessage)
			}
			since := got.Since.Sub(began)
			if late := stalledAt - since; late < after || late > after+2*interval {
				t.Errorf("found after %s without progress, want %s", late, after)
			}
			if limit := int(30*time.Minute/(after/examinationParts)) + 1; examinations > limit {
				t.Errorf("%d examinations, want at most %d", examinations, limit)
			}
		})
	}
}

func TestWorkingJobs(t *testing.T) {
	const hours = 6 * time.Hour
	alternate := func(a, b doing, every time.Duration) func(time.Duration, *protocol.Activity) {
		return func(elapsed time.Duration, activity *protocol.Activity) {
			if !activity.Examined {
				return
			}
			one := []doing{a, b}[int(elapsed/every)%2]
			activity.Hosts[0].Ranks[0].Doing = one.doing
			other := []doing{b, a}[int(elapsed/every)%2]
			activity.Hosts[0].Ranks[1].Doing = other.doing
		}
	}
	tests := map[string]struct {
		play
		settings Settings
	}{
		"silent, all compute":                       {play: play{ranks: []doing{computes, computes, computes, computes}}},
		"silent, two compute on two hosts":          {play: play{ranks: []doing{computes, spins, computes, spins, spins, spins}}},
		"a single rank":                             {play: play{ranks: []doing{computes}}},
		"no rank can be examined":                   {play: play{ranks: []doing{isUnseen, isUnseen, isUnseen}}},
		"one cannot be examined":                    {play: play{ranks: []doing{spins, spins, isUnseen}}},
		"one computes, one cannot be examined":      {play: play{ranks: []doing{spins, computes, isUnseen}}},
		"sleeps between kernels of a GPU":           {play: play{ranks: []doing{{state: "S", doing: protocol.Sleeping, cpu: 0.2}, {state: "S", doing: protocol.Sleeping, cpu: 0.2}}}},
		"one writes a checkpoint while others spin": {play: play{ranks: []doing{{state: "D", doing: protocol.Sleeping, cpu: 0.01, bytes: 50 << 20}, spins, spins, spins}}},
		"serial phases of different ranks":          {play: play{ranks: []doing{computes, spins, spins, spins}, change: alternate(computes, spins, time.Minute)}},
		"a line every ten minutes":                  {play: play{ranks: []doing{spins, spins}, change: writesEvery(10 * time.Minute)}},
		"a metric every ten minutes": {play: play{ranks: []doing{spins, spins}, change: func(elapsed time.Duration, a *protocol.Activity) {
			a.Progress = &protocol.Progress{Metrics: []protocol.Metric{{Name: "loss", Value: elapsed.Truncate(10 * time.Minute).String()}}}
		}}},
		"a step of one rank every ten minutes": {play: play{ranks: []doing{spins, spins}, change: func(elapsed time.Duration, a *protocol.Activity) {
			step := int64(elapsed / (10 * time.Minute))
			a.Hosts[0].Ranks[1].Step = &step
		}}},
		"a rank that is restarted": {play: play{ranks: []doing{spins, spins}, change: func(elapsed time.Duration, a *protocol.Activity) {
			a.Hosts[0].Ranks[1].PID += int(elapsed / (10 * time.Minute))
		}}},
		"hangs, and it is off":    {play: play{ranks: []doing{spins, spins}}, settings: Settings{After: 0}},
		"hangs, and is not asked": {play: play{ranks: []doing{spins, spins}, change: func(_ time.Duration, a *protocol.Activity) { a.Examined = false }}},
		"no ranks":                {play: play{}},
		"hangs, and has finished": {play: play{ranks: []doing{spins, spins}, change: func(_ time.Duration, a *protocol.Activity) { a.Final = true }}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			settings := Settings{After: after}
			if strings.Contains(name, "it is off") {
				settings = tc.settings
			}
			got, _, stalledAt := tc.judge(t, hours, settings)
			if stalledAt != 0 || got.Stalled || got.Message != "" || got.Odd != nil {
				t.Errorf("stalled after %s: %+v", stalledAt, got)
			}
		})
	}
}

// A job that does not write is examined rarely, and one that does never.
func TestExaminationsAreRare(t *testing.T) {
	_, silent, _ := play{ranks: []doing{computes, computes}}.judge(t, time.Hour, Settings{After: after})
	if silent == 0 || silent > 9 {
		t.Errorf("a silent job was examined %d times in an hour, want 1 to 9", silent)
	}
	_, talkative, _ := play{ranks: []doing{computes, computes}, change: writesEvery(time.Minute)}.judge(t, time.Hour, Settings{After: after})
	if talkative != 0 {
		t.Errorf("a job that writes was examined %d times", talkative)
	}
}

func TestProgressEndsAStall(t *testing.T) {
	h, examine := &History{}, false
	stalled := map[bool]int{}
	for elapsed := time.Duration(0); elapsed < time.Hour; elapsed += interval {
		a := play{ranks: []doing{spins, spins}}.report(began.Add(elapsed), elapsed, examine)
		if elapsed > 40*time.Minute {
			line := began.Add(40 * time.Minute)
			a.LastOutput = &line
		}
		h.Add(began.Add(elapsed), a)
		verdict := Judge(h, began.Add(elapsed), Settings{After: after})
		examine = verdict.NeedsExamination
		stalled[verdict.Stalled]++
		if verdict.Stalled && elapsed > 40*time.Minute && elapsed < 55*time.Minute {
			t.Fatalf("stalled %s after a line", elapsed-40*time.Minute)
		}
	}
	if stalled[true] == 0 || stalled[false] == 0 {
		t.Errorf("stalled in %v of the reports", stalled)
	}
}

func TestStragglers(t *testing.T) {
	settings := Settings{StragglerFactor: 3, StragglerWindow: 5 * time.Minute}
	throttled := doing{state: "R", cpu: 0.2}
	busy := doing{state: "R", cpu: 1}
	walks := func(pace ...float64) func(time.Duration, *protocol.Activity) {
		return func(elapsed time.Duration, a *protocol.Activity) {
			for i := range pace {
				step := int64(elapsed.Seconds() * pace[i])
				a.Hosts[i/2].Ranks[i%2].Step = &step
			}
		}
	}
	tests := map[string]struct {
		play
		settings Settings
		lasts    time.Duration
		want     []Straggler
	}{
		"a host with a CPU quota": {play: play{ranks: []doing{busy, busy, throttled, throttled, busy, busy}}, want: []Straggler{{Rank: 2, Host: "b", Factor: 5}, {Rank: 3, Host: "b", Factor: 5}}},
		"all are alike":           {play: play{ranks: []doing{busy, busy, busy, busy}}},
		"a rank that sleeps":      {play: play{ranks: []doing{{state: "S", cpu: 0.01}, busy, busy, busy}}},
		"less than the factor":    {play: play{ranks: []doing{{state: "R", cpu: 0.5}, busy, busy, busy}}},
		"all sleep":               {play: play{ranks: []doing{{state: "R", cpu: 0.001}, {state: "S", cpu: 0.01}, {state: "S", cpu: 0.01}}}},
		"a slow disk":             {play: play{ranks: []doing{{state: "D", cpu: 0.1}, busy, busy, busy}}, want: []Straggler{{Rank: 0, Host: "a", Factor: 10}}},
		"fewer steps":             {play: play{ranks: []doing{busy, busy, busy, busy}, change: walks(1, 1, 1, 0.25)}, want: []Straggler{{Rank: 3, Host: "b", Factor: 4}}},
		"no steps at all":         {play: play{ranks: []doing{busy, busy, busy, busy}, change: walks(1, 1, 1, 0)}, want: []Straggler{{Rank: 3, Host: "b", Factor: maxFactor}}},
		"two ranks":               {play: play{ranks: []doing{busy, throttled}}},
		"off":                     {play: play{ranks: []doing{busy, busy, throttled, busy}}, settings: Settings{StragglerFactor: 1, StragglerWindow: time.Minute}},
		"too early":               {play: play{ranks: []doing{busy, busy, throttled, busy}}, lasts: 4 * time.Minute},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.settings == (Settings{}) {
				tc.settings = settings
			}
			if tc.lasts == 0 {
				tc.lasts = 2 * time.Hour
			}
			got, _, _ := tc.judge(t, tc.lasts, tc.settings)
			if diff := cmp.Diff(tc.want, got.Stragglers, cmpopts.EquateApprox(0.05, 0), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("stragglers (-want +got):\n%s", diff)
			}
			if got.Stalled {
				t.Error("stalled, and that is off")
			}
		})
	}
}

// The operator keeps a history of each job.
func TestHistoryIsBounded(t *testing.T) {
	h := &History{}
	for i := range 5000 {
		now := began.Add(time.Duration(i) * interval)
		h.Add(now, play{ranks: []doing{spins, spins}}.report(now, now.Sub(began), i%2 == 0))
	}
	if age := h.receivedAt.Sub(h.samples[0].at); age < 30*time.Minute {
		t.Errorf("the samples cover %s, want more than 30 minutes", age)
	}
	if len(h.samples) > maxSamples || len(h.ranks) != 2 || len(h.examined) > 2 || len(h.computing) > 2 {
		t.Errorf("%d samples, %d ranks, %d examined, %d computing", len(h.samples), len(h.ranks), len(h.examined), len(h.computing))
	}
}

func TestSummary(t *testing.T) {
	later := began.Add(time.Minute)
	a := &protocol.Activity{Hosts: []protocol.Host{
		{Name: "a", Ranks: []protocol.Rank{{Rank: 0, State: "R", Started: later}, {Rank: 1, State: "Z", Started: began}}},
		{Name: "b", Unknown: "no answer"},
		{Name: "c", Ranks: []protocol.Rank{{Rank: 2, State: "S", Started: later}}},
	}}
	if running, first := Summary(a); running != 2 || !first.Equal(began) {
		t.Errorf("%d ranks since %s, want 2 since %s", running, first, began)
	}
	if running, first := Summary(&protocol.Activity{}); running != 0 || !first.IsZero() {
		t.Errorf("%d ranks since %s of no rank", running, first)
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{15 * time.Minute: "15m", time.Hour: "1h", 90 * time.Second: "1m30s", 5 * time.Second: "5s", 70 * time.Minute: "1h10m"} {
		if got := duration(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func ExampleJudge() {
	h, examine := &History{}, false
	job := play{ranks: []doing{spins, spins, isHalted, spins}}
	for elapsed := time.Duration(0); elapsed <= after; elapsed += interval {
		now := began.Add(elapsed)
		h.Add(now, job.report(now, elapsed, examine))
		examine = Judge(h, now, Settings{After: after}).NeedsExamination
	}
	fmt.Println(Judge(h, began.Add(after), Settings{After: after}).Message)
	// Output: No progress for 15m: rank 2 on b is stopped by a signal; the other 3 ranks wait. Send SIGCONT to it, or restart the job
}
