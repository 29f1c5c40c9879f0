// SPDX-License-Identifier: Apache-2.0

package report

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// example has two contestants, one with a sample that a busy machine spoilt.
func example() Report {
	report := Report{Machine: map[string]string{"cores": "2"}, Bases: map[string]string{"burst": "bare"}}
	for contestant, samples := range map[string][]Sample{"trireme": {3, 9, 2.5}, "bare": {2, 2, 4}} {
		for _, sample := range samples {
			report.Add(Result{Group: "burst", Case: "100x8", Contestant: contestant, Measure: "time", Unit: "s"}, sample)
		}
	}
	return report
}

func TestMedianAndSpread(t *testing.T) {
	report := example()
	result, ok := report.Find("burst", "100x8", "trireme", "time")
	if !ok || len(report.Results) != 2 {
		t.Fatalf("results are %v", report.Results)
	}
	if low, high := result.Spread(); result.Median() != 3 || low != 2.5 || high != 9 {
		t.Errorf("median %v, spread %v..%v of %v", result.Median(), low, high, result.Samples)
	}
	if even := (Result{Samples: []Sample{4, 1, 2, 3}}); even.Median() != 2.5 {
		t.Errorf("median of %v is %v", even.Samples, even.Median())
	}
}

func TestPrint(t *testing.T) {
	report := example()
	report.Goals = []Goal{AtMost("near the limit", 1.5, 1.3), AtLeast("faster", 12, 10)}
	var printed strings.Builder
	if err := report.Print(&printed); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(printed.String()), " ")
	for _, want := range []string{"cores 2", "burst (compared with bare)", "100x8 time, s",
		"3 (2.5..9) 1.5x", "2 (2..4)", "near the limit 1.5 at most 1.3 missed", "faster 12 at least 10 met"} {
		if !strings.Contains(text, want) {
			t.Errorf("does not say %q:\n%s", want, printed.String())
		}
	}
}

func TestWriteReadMerge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench", "burst.json")
	written := example()
	written.Goals = []Goal{AtLeast("faster", 12, 10)}
	if err := written.Write(path); err != nil {
		t.Fatal(err)
	}
	read, err := Read(path)
	if err != nil || !reflect.DeepEqual(read, written) {
		t.Fatalf("read %v (%v), written %v", read, err, written)
	}
	other := Report{Machine: map[string]string{"kernel": "6"}, Results: []Result{{Group: "pods"}}}
	merged := Merge(read, other)
	if len(merged.Results) != 3 || len(merged.Machine) != 2 || len(merged.Goals) != 1 || merged.Bases["burst"] != "bare" {
		t.Errorf("merged: %+v", merged)
	}
}

func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 0.012345: "0.0123", 1.3: "1.3", 12.345: "12.3", 1234.5: "1235", 5: "5"} {
		if got := number(value); got != want {
			t.Errorf("number(%v) is %s, want %s", value, got, want)
		}
	}
}
