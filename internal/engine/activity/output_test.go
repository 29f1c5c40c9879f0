// SPDX-License-Identifier: Apache-2.0

package activity

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

func TestOutputProgress(t *testing.T) {
	long := strings.Repeat("n", 100)
	tests := map[string]struct {
		lines    []string
		pattern  string
		isTagged bool
		want     *protocol.Progress
	}{
		"a report": {lines: []string{`trireme: {"step": 10, "of": 100, "loss": 0.3}`},
			want: &protocol.Progress{Step: new(int64(10)), Of: 100, Percentage: new(int32(10)), Metrics: []protocol.Metric{{Name: "loss", Value: "0.3"}}}},
		"a report of Open MPI's rank": {lines: []string{`[1,0]<stdout>:trireme: {"step": 1}`}, want: &protocol.Progress{Step: new(int64(1))}},
		"a report of Hydra's rank":    {lines: []string{`[0] trireme: {"step": 1}`}, isTagged: true, want: &protocol.Progress{Step: new(int64(1))}},
		"brackets of a program":       {lines: []string{`[0] trireme: {"step": 1}`}},
		"the lowest rank counts":      {lines: []string{`[1,1]<stdout>:trireme: {"step": 7}`, `[1,0]<stdout>:trireme: {"step": 5}`, `[1,1]<stdout>:trireme: {"step": 8}`}, want: &protocol.Progress{Step: new(int64(5))}},
		"its own percentage":          {lines: []string{`trireme: {"percentage": 41.9, "remaining": 60}`}, want: &protocol.Progress{Percentage: new(int32(41)), RemainingSeconds: new(int64(60))}},
		"a diverged loss":             {lines: []string{`trireme: {"step": 3, "loss": NaN, "low": -Infinity}`}, want: &protocol.Progress{Step: new(int64(3)), Metrics: []protocol.Metric{{Name: "loss", Value: "NaN"}, {Name: "low", Value: "-Infinity"}}}},
		"whole numbers as floats":     {lines: []string{`trireme: {"step": 3.0, "of": 1e3}`}, want: &protocol.Progress{Step: new(int64(3)), Of: 1000, Percentage: new(int32(0))}},
		"strings and others":          {lines: []string{`trireme: {"phase": "warm up", "done": false, "nothing": null, "list": [1], "object": {"step": 4}, "rate": 1e-4}`}, want: &protocol.Progress{Metrics: []protocol.Metric{{Name: "phase", Value: "warm up"}, {Name: "rate", Value: "1e-4"}}}},
		"metrics of several lines":    {lines: []string{`trireme: {"loss": 2}`, `trireme: {"accuracy": 0.5}`, `trireme: {"loss": 1}`}, want: &protocol.Progress{Metrics: []protocol.Metric{{Name: "accuracy", Value: "0.5"}, {Name: "loss", Value: "1"}}}},
		"long names and values":       {lines: []string{`trireme: {"` + long + `": "` + strings.Repeat("é", 60) + `"}`}, want: &protocol.Progress{Metrics: []protocol.Metric{{Name: long[:64], Value: strings.Repeat("é", 32)}}}},
		"terminal sequences":          {lines: []string{`trireme: {"a\u001b[31m": "b\n\u0007c"}`}, want: &protocol.Progress{Metrics: []protocol.Metric{{Name: "a[31m", Value: "bc"}}}},
		"many digits":                 {lines: []string{`trireme: {"a": 0.` + strings.Repeat("3", 100) + `}`}, want: &protocol.Progress{Metrics: []protocol.Metric{{Name: "a", Value: "0.3333333333333333"}}}},
		"negative steps":              {lines: []string{`trireme: {"step": -1, "of": -4, "remaining": -1, "percentage": 101}`}},
		"more steps than announced":   {lines: []string{`trireme: {"step": 12, "of": 10}`}, want: &protocol.Progress{Step: new(int64(12)), Of: 10, Percentage: new(int32(100))}},
		"the middle of a line":        {lines: []string{`see trireme: {"step": 1}`}},
		"not an object":               {lines: []string{`trireme: [1]`, `trireme: 12`, `trireme: 2 workers reached`, `trireme:`, `trireme: {"step": 1`, `trireme: {"step"}`, `trireme: {`}},
		"nothing":                     {},
		"a pattern":                   {pattern: `epoch (\d+) of (\d+)`, lines: []string{"INFO epoch 2 of 8", "epoch x of 9"}, want: &protocol.Progress{Step: new(int64(2)), Of: 8, Percentage: new(int32(25))}},
		"a pattern with names": {pattern: `epoch (\d+)/(\d+).* loss=(?P<loss>\S+)`, lines: []string{"epoch 2/8 lr=1 loss=0.25"},
			want: &protocol.Progress{Step: new(int64(2)), Of: 8, Percentage: new(int32(25)), Metrics: []protocol.Metric{{Name: "loss", Value: "0.25"}}}},
		"a pattern with names only":  {pattern: `(?P<percentage>\d+)%.*(?P<speed>[\d.]+)it/s`, lines: []string{"12%|#  | 5it/s"}, want: &protocol.Progress{Percentage: new(int32(12)), Metrics: []protocol.Metric{{Name: "speed", Value: "5"}}}},
		"a group that takes no part": {pattern: `step (\d+)(?: of (\d+))?`, lines: []string{"step 3 of 4", "step 3"}, want: &protocol.Progress{Step: new(int64(3)), Of: 4, Percentage: new(int32(75))}},
		"a long line":                {pattern: `(\d+)`, lines: []string{strings.Repeat("1", 2000)}},
		"a report beside a pattern":  {pattern: `epoch (\d+)`, lines: []string{"epoch 4", `trireme: {"loss": 1}`}, want: &protocol.Progress{Step: new(int64(4)), Metrics: []protocol.Metric{{Name: "loss", Value: "1"}}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := NewOutput(tc.pattern, tc.isTagged)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range tc.lines {
				o.Line([]byte(line), began)
			}
			if diff := cmp.Diff(tc.want, o.Progress(began)); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOutputRemainingTime(t *testing.T) {
	o, _ := NewOutput("", false)
	o.Line([]byte(`trireme: {"step": 10, "of": 100}`), began)
	if got := o.Progress(began.Add(time.Minute)).RemainingSeconds; got != nil {
		t.Errorf("%d s remain after the first step, want no value", *got)
	}
	o.Line([]byte(`trireme: {"step": 20}`), began.Add(time.Minute))
	if got := o.Progress(began.Add(time.Minute)).RemainingSeconds; got == nil || *got != 480 {
		t.Errorf("%v s remain, want 480", got)
	}
	// A job that begins at an earlier step again, as after a restart.
	o.Line([]byte(`trireme: {"step": 5}`), began.Add(2*time.Minute))
	if got := o.Progress(began.Add(3 * time.Minute)).RemainingSeconds; got != nil {
		t.Errorf("%d s remain after a step back, want no value", *got)
	}
	o.Line([]byte(`trireme: {"remaining": 90}`), began.Add(3*time.Minute))
	if got := o.Progress(began.Add(4 * time.Minute)).RemainingSeconds; got == nil || *got != 30 {
		t.Errorf("%v s remain a minute after the program said 90", got)
	}
}

// Without a new report, progress does not change with the clock, also if the program
// repeats its lines.
func TestOutputDoesNotChangeWithClock(t *testing.T) {
	for name, lines := range map[string][]string{
		"steps":              {`trireme: {"step": 10, "of": 100}`, `trireme: {"step": 20, "loss": 0.5}`},
		"its remaining time": {`trireme: {"percentage": 41, "remaining": 600}`},
	} {
		o, _ := NewOutput("", false)
		for i, line := range lines {
			o.Line([]byte(line), began.Add(time.Duration(i)*time.Minute))
		}
		first := o.Progress(began.Add(time.Minute))
		if first.RemainingSeconds == nil {
			t.Errorf("%s: no remaining time", name)
		}
		o.Line([]byte(lines[len(lines)-1]), began.Add(90*time.Second))
		if diff := cmp.Diff(first, o.Progress(began.Add(2*time.Minute))); diff != "" {
			t.Errorf("%s: a minute later (-first +later):\n%s", name, diff)
		}
	}
}

func TestOutputOfRanks(t *testing.T) {
	o, _ := NewOutput("", true)
	o.Line([]byte(`[3] trireme: {"step": 2}`), began)
	o.Line([]byte(`[3] a line`), began.Add(time.Second))
	o.Line([]byte(`[1] a line`), began.Add(2*time.Second))
	three, known := o.Rank(3)
	if !known || three.Step == nil || *three.Step != 2 || !three.LastLine.Equal(began.Add(time.Second)) {
		t.Errorf("rank 3: %+v", three)
	}
	if one, known := o.Rank(1); !known || one.Step != nil {
		t.Errorf("rank 1: %+v", one)
	}
	if _, known := o.Rank(2); known {
		t.Error("rank 2 is known")
	}
	if !o.LastLine().Equal(began.Add(2 * time.Second)) {
		t.Errorf("last line at %s", o.LastLine())
	}
}

func TestOutputIsBounded(t *testing.T) {
	o, _ := NewOutput("", true)
	for i := range maxOutputRanks + 10 {
		o.Line(fmt.Appendf(nil, `[%d] trireme: {"metric%d": 1}`, 1<<20-i, i), began)
	}
	if len(o.ranks) > maxOutputRanks || len(o.Progress(began).Metrics) > protocol.MaxMetrics {
		t.Errorf("%d ranks, %d metrics", len(o.ranks), len(o.Progress(began).Metrics))
	}
}

func TestOutputRefusesInvalidPattern(t *testing.T) {
	o, err := NewOutput(`epoch (\d+`, false)
	if err == nil || !strings.Contains(err.Error(), protocol.ProgressPatternVariable) {
		t.Errorf("error %v", err)
	}
	// Reports still count.
	o.Line([]byte(`trireme: {"step": 1}`), began)
	if o.Progress(began) == nil {
		t.Error("no progress")
	}
}

func FuzzOutput(f *testing.F) {
	for _, line := range []string{`trireme: {"step": 10, "of": 100, "loss": NaN}`, `[1,2]<stdout>: trireme: {"a": "b"}`, "[3] epoch 1 of 2 loss=3", `trireme: {"a":{"b":[1,{}]}}`, "\r12%\r"} {
		f.Add([]byte(line), `epoch (\d+) of (\d+).*loss=(?P<loss>\S+)`)
	}
	f.Fuzz(func(t *testing.T, line []byte, pattern string) {
		o, _ := NewOutput(pattern, true)
		o.Line(line, began)
		progress := o.Progress(began.Add(time.Second))
		if progress == nil {
			return
		}
		if _, err := json.Marshal(progress); err != nil {
			t.Error(err)
		}
		if progress.Percentage != nil && (*progress.Percentage < 0 || *progress.Percentage > 100) || progress.Step != nil && *progress.Step < 0 || progress.Of < 0 {
			t.Errorf("progress %+v", progress)
		}
		if progress.RemainingSeconds != nil && *progress.RemainingSeconds < 0 {
			t.Errorf("%d s remain", *progress.RemainingSeconds)
		}
		if len(progress.Metrics) > protocol.MaxMetrics {
			t.Errorf("%d metrics", len(progress.Metrics))
		}
		for _, metric := range progress.Metrics {
			if metric.Name == "" || len(metric.Name) > protocol.MaxMetricLength || len(metric.Value) > protocol.MaxMetricLength || !utf8.ValidString(metric.Name+metric.Value) {
				t.Errorf("metric %q", metric)
			}
		}
	})
}

// Every line of a job passes Line.
func BenchmarkOutputLine(b *testing.B) {
	for name, tc := range map[string]struct{ line, pattern string }{
		"other":            {line: "epoch: 3 step: 1200 loss: 0.4231 lr: 3e-4 tokens: 1234 tokens/s: 88123.5"},
		"tagged":           {line: "[1,3]<stdout>:epoch: 3 step: 1200 loss: 0.4231 lr: 3e-4 tokens: 1234"},
		"report":           {line: `trireme: {"step": 10, "of": 100, "loss": 0.3}`},
		"pattern, other":   {line: "loading the next shard of the data set from disk, 12 of them are left", pattern: `epoch (\d+) of (\d+)`},
		"pattern, matches": {line: "epoch 3 of 12 loss 0.3", pattern: `epoch (\d+) of (\d+)`},
		"1 MB":             {line: strings.Repeat("step 12 loss=0.1 ", 1<<16), pattern: `epoch (\d+) of (\d+)`},
	} {
		b.Run(name, func(b *testing.B) {
			o, err := NewOutput(tc.pattern, false)
			if err != nil {
				b.Fatal(err)
			}
			line := []byte(tc.line)
			b.ReportAllocs()
			for b.Loop() {
				o.Line(line, began)
			}
		})
	}
}
