// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// repeated is an element so many times, as a list.
func repeated(element string, times int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", times), ",") + "]"
}

func TestParseActivityKeepsReport(t *testing.T) {
	started := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	want := &protocol.Activity{
		Time: started.Add(time.Minute), LastOutput: &started, Examined: true, Final: true,
		Progress: &protocol.Progress{Step: new(int64(5)), Of: 10, Metrics: []protocol.Metric{{Name: "loss", Value: "0.5"}}},
		Hosts: []protocol.Host{
			{Name: "bert-worker-0.bert", Ranks: []protocol.Rank{{
				Rank: 0, PID: 42, State: "S", Started: started, CPUSeconds: 1.5, Memory: 1 << 30, BytesRead: 7, BytesWritten: 8, LastOutput: &started, Step: new(int64(5)),
				Doing: protocol.Sleeping, WaitsFor: "inet_csk_accept (connection to bert-worker-1)", Stack: []string{"train.py:10 in step"},
			}}},
			{Name: "bert-worker-1.bert", Unknown: "it does not answer in time"},
		},
		Kept: []protocol.Curve{{Name: "loss", Points: []protocol.Point{{Milliseconds: started.UnixMilli(), Step: new(int64(5)), Value: 0.5}, {Milliseconds: started.UnixMilli() + 1, Value: 0.25}}}},
	}
	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseActivity(body, LimitsOf(3))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An agent cannot send more of metrics over time than an operator keeps.
func TestKeptMetricsAreLimited(t *testing.T) {
	point := `{"t": 1, "v": 2}`
	curve := `{"name": "loss", "points": ` + repeated(point, protocol.MaxPoints+1) + `}`
	for name, tc := range map[string]struct {
		kept string
		want int
	}{
		"nothing":         {"[]", 0},
		"many curves":     {repeated(curve, protocol.MaxCurves+1), protocol.MaxCurves},
		"no name":         {`[{"points": [` + point + `]}]`, 0},
		"a long name":     {`[{"name": "` + strings.Repeat("n", protocol.MaxMetricLength+1) + `", "points": [` + point + `]}]`, 0},
		"another curve":   {`[{"name": "a", "newer": 1}, ` + curve + `]`, 2},
		"a name's length": {`[{"name": "` + strings.Repeat("é", protocol.MaxMetricLength) + `"}]`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseActivity([]byte(`{"kept": `+tc.kept+`}`), LimitsOf(1))
			if err != nil {
				t.Fatal(err)
			}
			if got.Kept == nil || len(got.Kept) != tc.want {
				t.Fatalf("%d curves, want %d", len(got.Kept), tc.want)
			}
			for _, one := range got.Kept {
				if len(one.Points) > protocol.MaxPoints {
					t.Errorf("%s has %d points", one.Name, len(one.Points))
				}
			}
		})
	}
}

func TestParseActivityCleans(t *testing.T) {
	long := strings.Repeat("é", 1000)
	for name, tc := range map[string]struct {
		hosts string
		want  []protocol.Host
	}{
		"no hosts":             {hosts: "null"},
		"a host twice":         {hosts: `[{"name": "a", "ranks": [{"rank": 0}]}, {"name": "a", "ranks": [{"rank": 1}]}]`, want: []protocol.Host{{Name: "a", Ranks: []protocol.Rank{{Rank: 0}, {Rank: 1}}}}},
		"unknown and known":    {hosts: `[{"name": "a", "unknown": "no answer"}, {"name": "a", "ranks": [{"rank": 1}]}]`, want: []protocol.Host{{Name: "a", Ranks: []protocol.Rank{{Rank: 1}}}}},
		"known and unknown":    {hosts: `[{"name": "a", "ranks": [{"rank": 1}]}, {"name": "a", "unknown": "no answer"}]`, want: []protocol.Host{{Name: "a", Ranks: []protocol.Rank{{Rank: 1}}}}},
		"unknown with ranks":   {hosts: `[{"name": "a", "unknown": "no answer", "ranks": [{"rank": 1}]}]`, want: []protocol.Host{{Name: "a", Unknown: "no answer"}}},
		"a long reason":        {hosts: `[{"name": "a", "unknown": "` + long + `"}]`, want: []protocol.Host{{Name: "a", Unknown: strings.Repeat("é", maxReason/2) + "…"}}},
		"what it waits for":    {hosts: `[{"name": "a", "ranks": [{"rank": 0, "waitsFor": "` + long + `"}]}]`, want: []protocol.Host{{Name: "a", Ranks: []protocol.Rank{{WaitsFor: strings.Repeat("é", maxWaitsFor/2) + "…"}}}}},
		"a long state":         {hosts: `[{"name": "a", "ranks": [{"rank": 0, "state": "running and running"}]}]`, want: []protocol.Host{{Name: "a", Ranks: []protocol.Rank{{State: "running …"}}}}},
		"an unknown activity":  {hosts: `[{"name": "a", "ranks": [{"rank": 0, "doing": "Dreaming"}]}]`, want: []protocol.Host{{Name: "a", Ranks: []protocol.Rank{{}}}}},
		"control characters":   {hosts: `[{"name": "a\n\u001b[2J", "unknown": "b\u0000"}]`, want: []protocol.Host{{Name: "a[2J", Unknown: "b"}}},
		"a deep stack":         {hosts: `[{"name": "a", "ranks": [{"rank": 0, "stack": ` + repeated(`"f"`, 100) + `}]}]`, want: []protocol.Host{{Name: "a", Ranks: []protocol.Rank{{Stack: strings.Split(strings.Repeat("f", maxFrames), "")}}}}},
		"another field of it":  {hosts: `[{"name": "a", "newer": [1, {}]}]`, want: []protocol.Host{{Name: "a"}}},
		"hosts within hosts":   {hosts: `[{"name": "a", "hosts": [{"name": "b"}]}]`, want: []protocol.Host{{Name: "a"}}},
		"the same rank, twice": {hosts: `[{"name": "a", "ranks": [{"rank": 0}]}, {"name": "b", "ranks": [{"rank": 0}]}]`, want: []protocol.Host{{Name: "a", Ranks: []protocol.Rank{{}}}, {Name: "b", Ranks: []protocol.Rank{{}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseActivity([]byte(`{"hosts": `+tc.hosts+`}`), LimitsOf(1))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Hosts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseActivityRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"no JSON":             {"45,", "the body is not an activity"},
		"hosts that are none": {`{"hosts": {"name": "a"}}`, "is not a list"},
		"too many hosts":      {`{"hosts": ` + repeated("{}", 2+moreHosts) + `}`, "it has more than 17 hosts"},
		"hosts in two lists":  {`{"hosts": ` + repeated("{}", 10) + `, "hosts": ` + repeated("{}", 10) + `}`, "it has more than 17 hosts"},
		"too many ranks":      {`{"hosts": [{"ranks": ` + repeated("{}", 400) + `}, {"ranks": ` + repeated("{}", 113) + `}]}`, "it has more than 512 ranks"},
		"a long name":         {`{"hosts": [{"name": "` + strings.Repeat("a", 254) + `"}]}`, "hosts[0].name has 254 bytes; at most 253 are allowed"},
		"a negative rank":     {`{"hosts": [{"ranks": [{"rank": -1}]}]}`, "rank is -1; it must be between 0 and 2147483647"},
		"a rank of 64 bits":   {`{"hosts": [{"ranks": [{"rank": 4294967296}]}]}`, "rank is 4294967296"},
		"too many metrics":    {`{"progress": {"metrics": ` + repeated("{}", 257) + `}}`, "progress.metrics has more than 256 entries"},
		"an invalid progress": {`{"progress": {"percentage": 101}}`, "progressPercentage is 101"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseActivity([]byte(tc.body), LimitsOf(1)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestLimitsGrowWithPods(t *testing.T) {
	for pods, want := range map[int]Limits{
		0:       {Hosts: 17, Ranks: 512, Bytes: 512 << 10},
		1:       {Hosts: 17, Ranks: 512, Bytes: 512 << 10},
		3:       {Hosts: 19, Ranks: 1536, Bytes: 1 << 20},
		1000000: {Hosts: 1000016, Ranks: protocol.MaxRanks, Bytes: protocol.MaxActivityBytes},
	} {
		if diff := cmp.Diff(want, LimitsOf(pods)); diff != "" {
			t.Errorf("%d pods: %s", pods, diff)
		}
	}
}

// The memory for a hostile report is not a multiple of its text.
func TestParseActivityNeedsLittleMemory(t *testing.T) {
	limits := LimitsOf(1)
	for name, body := range map[string]string{
		"hosts":   `{"hosts": ` + repeated("{}", int(limits.Bytes)/3-10) + `}`,
		"ranks":   `{"hosts": [{"ranks": ` + repeated("{}", int(limits.Bytes)/3-20) + `}]}`,
		"frames":  `{"hosts": [{"ranks": [{"stack": ` + repeated(`""`, int(limits.Bytes)/3-20) + `}]}]}`,
		"metrics": `{"progress": {"metrics": ` + repeated("{}", int(limits.Bytes)/3-20) + `}}`,
	} {
		text := []byte(body)
		if int64(len(text)) > limits.Bytes {
			t.Fatalf("%s: %d bytes", name, len(text))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = ParseActivity(text, limits)
		runtime.ReadMemStats(&after)
		if used := int64(after.TotalAlloc - before.TotalAlloc); used > 10*limits.Bytes {
			t.Errorf("%s: %d bytes were allocated for %d", name, used, len(text))
		}
	}
}

func FuzzParseActivity(f *testing.F) {
	f.Add([]byte(`{"time": "2026-11-18T12:00:00Z", "hosts": [{"name": "a", "ranks": [{"rank": 0, "state": "R"}]}, {"name": "b", "unknown": "why"}], "progress": {"step": 1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		limits := LimitsOf(1)
		parsed, err := ParseActivity(body, limits)
		if err != nil {
			return
		}
		names, ranks := map[string]bool{}, 0
		for _, host := range parsed.Hosts {
			if names[host.Name] || len(host.Name) > maxHostLength*2 || len(host.Unknown) > maxReason+len("…") {
				t.Errorf("host %+v", host)
			}
			names[host.Name] = true
			ranks += len(host.Ranks)
		}
		if len(parsed.Hosts) > limits.Hosts || ranks > limits.Ranks {
			t.Errorf("%d hosts, %d ranks", len(parsed.Hosts), ranks)
		}
		if _, err := json.Marshal(parsed); err != nil {
			t.Error(err)
		}
	})
}

// What the reports of 64 ranks cost.
func BenchmarkParseActivity(b *testing.B) {
	activity := &protocol.Activity{Time: time.Now()}
	for host := range 8 {
		one := protocol.Host{Name: fmt.Sprintf("bert-worker-%d.bert", host)}
		for rank := range 8 {
			one.Ranks = append(one.Ranks, protocol.Rank{Rank: 8*host + rank, PID: 40 + rank, State: "R", Started: time.Now(), CPUSeconds: 12.5, Memory: 1 << 30})
		}
		activity.Hosts = append(activity.Hosts, one)
	}
	body, err := json.Marshal(activity)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseActivity(body, LimitsOf(9)); err != nil {
			b.Fatal(err)
		}
	}
}
