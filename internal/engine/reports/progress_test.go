// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

func TestParse(t *testing.T) {
	// What Hugging Face's Trainer sends, with a field of a newer version.
	body := `{"trainerStatus": {"progressPercentage": 45, "estimatedRemainingSeconds": 795, "metrics": [{"name": "loss", "value": "0.23"}],
		"lastUpdatedTime": "2026-11-18T12:00:00Z", "newer": true}}`
	want := &protocol.Progress{Percentage: new(int32(45)), RemainingSeconds: new(int64(795)), Metrics: []protocol.Metric{{Name: "loss", Value: "0.23"}}}
	got, err := Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefuses(t *testing.T) {
	status := func(content string) string { return `{"trainerStatus": {` + content + `}}` }
	metric := func(name, value string) string { return fmt.Sprintf(`{"name": %q, "value": %q}`, name, value) }
	for name, tc := range map[string]struct{ body, want string }{
		"no JSON":           {"45", "the body is not a report"},
		"no status":         {"{}", "the body has no trainerStatus"},
		"a number as value": {status(`"metrics": [{"name": "loss", "value": 0.23}]`), "the body is not a report"},
		"too much":          {status(`"progressPercentage": 101`), "progressPercentage is 101; it must be between 0 and 100"},
		"too little":        {status(`"progressPercentage": -1`), "progressPercentage is -1"},
		"a negative time":   {status(`"estimatedRemainingSeconds": -1`), "estimatedRemainingSeconds is -1"},
		"a negative step":   {status(`"step": -1`), "step is -1"},
		"negative steps":    {status(`"totalSteps": -1`), "totalSteps is -1"},
		"too many metrics":  {status(`"metrics": [` + strings.TrimSuffix(strings.Repeat(metric("a", "1")+",", 257), ",") + "]"), "metrics has 257 entries; at most 256 are allowed"},
		"no name":           {status(`"metrics": [` + metric("", "1") + "]"), "metrics[0].name has 0 characters"},
		"a long name":       {status(`"metrics": [` + metric(strings.Repeat("é", 65), "1") + "]"), "metrics[0].name has 65 characters"},
		"a long value":      {status(`"metrics": [` + metric("a", strings.Repeat("1", 65)) + "]"), `metrics[0].value of "a" has 65 characters`},
		"a name twice":      {status(`"metrics": [` + metric("a", "1") + "," + metric("a", "2") + "]"), `metrics[1].name is "a", which appears twice`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(tc.body)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func steps(step, of int64, metrics ...protocol.Metric) *protocol.Progress {
	return &protocol.Progress{Step: &step, Of: of, Metrics: metrics}
}

func TestEstimate(t *testing.T) {
	var tr Training
	tr.Add(start, steps(0, 100))
	tr.Add(start.Add(10*time.Second), steps(10, 100, protocol.Metric{Name: "loss", Value: "2.5"}))
	// Metrics in a line of their own.
	tr.Add(start.Add(20*time.Second), &protocol.Progress{Metrics: []protocol.Metric{{Name: "accuracy", Value: "0.5"}}})
	want := &training.TrainerStatus{
		Step: new(int64(10)), TotalSteps: new(int64(100)), ProgressPercentage: new(int32(10)), EstimatedRemainingSeconds: new(int64(90)),
		Metrics:         []training.TrainerMetric{{Name: "accuracy", Value: "0.5"}, {Name: "loss", Value: "2.5"}},
		LastUpdatedTime: &metav1.Time{Time: start.Add(20 * time.Second)},
	}
	if diff := cmp.Diff(want, tr.Status()); diff != "" {
		t.Error(diff)
	}
	// What the program says itself is not changed.
	tr.Add(start.Add(30*time.Second), &protocol.Progress{Step: new(int64(20)), Of: 100, Percentage: new(int32(7)), RemainingSeconds: new(int64(3))})
	if got := tr.Status(); *got.ProgressPercentage != 7 || *got.EstimatedRemainingSeconds != 3 {
		t.Errorf("%d %% and %d s, want those of the program", *got.ProgressPercentage, *got.EstimatedRemainingSeconds)
	}
	// A program that begins again is not estimated from before.
	tr.Add(start.Add(40*time.Second), steps(1, 100))
	if got := tr.Status(); got.EstimatedRemainingSeconds != nil || *got.ProgressPercentage != 1 {
		t.Errorf("after a new beginning: %+v", got)
	}
}

func TestCurves(t *testing.T) {
	var curves Curves
	for i := range 1000 {
		status := &training.TrainerStatus{Step: new(int64(i))}
		for metric := range 40 {
			status.Metrics = append(status.Metrics, training.TrainerMetric{Name: fmt.Sprint(metric), Value: fmt.Sprint(i)})
		}
		status.Metrics = append(status.Metrics, training.TrainerMetric{Name: "text", Value: "none"}, training.TrainerMetric{Name: "odd", Value: "NaN"})
		curves.add(start.Add(time.Duration(i)*time.Second), status)
	}
	all := curves.All()
	if len(all) != protocol.MaxCurves {
		t.Errorf("%d curves, want %d", len(all), protocol.MaxCurves)
	}
	for _, curve := range all {
		first, last := curve.Points[0], curve.Points[len(curve.Points)-1]
		if len(curve.Points) > protocol.MaxPoints+1 || len(curve.Points) < protocol.MaxPoints/2 || first.Value != 0 || last.Value != 999 || *last.Step != 999 {
			t.Fatalf("%s has %d points from %v to %v", curve.Name, len(curve.Points), first, last)
		}
		gap := curve.Points[1].Time.Sub(first.Time)
		for i := 1; i < len(curve.Points)-1; i++ {
			if curve.Points[i].Time.Sub(curve.Points[i-1].Time) != gap {
				t.Fatalf("%s: the points are not evenly spaced", curve.Name)
			}
		}
	}
}

// values are those of a curve, in the order of their times.
func values(t *testing.T, curves *Curves, name string) (values []float64) {
	t.Helper()
	last := time.Time{}
	for _, curve := range curves.All() {
		for _, point := range curve.Points {
			if curve.Name == name && point.Time.Before(last) {
				t.Errorf("%s goes back in time", name)
			}
			if curve.Name == name {
				values, last = append(values, point.Value), point.Time
			}
		}
	}
	return values
}

// What the agent has kept comes before what the next leader has received itself.
func TestRestoreCurves(t *testing.T) {
	point := func(second int, value float64) protocol.Point {
		return protocol.Point{Milliseconds: start.Add(time.Duration(second) * time.Second).UnixMilli(), Value: value}
	}
	var curves Curves
	curves.add(start.Add(10*time.Second), &training.TrainerStatus{Metrics: []training.TrainerMetric{{Name: "loss", Value: "10"}}})
	now := start.Add(20 * time.Second)
	curves.Restore([]protocol.Curve{
		{Name: "loss", Points: []protocol.Point{point(2, 2), point(1, 1), point(10, -1), point(15, -1)}},
		{Name: "accuracy", Points: []protocol.Point{point(3, 3), point(30, -1)}},
		{Name: "later", Points: []protocol.Point{point(30, -1)}},
		{Name: "empty"},
	}, now)
	for name, want := range map[string][]float64{"loss": {1, 2, 10}, "accuracy": {3}, "later": nil, "empty": nil} {
		if diff := cmp.Diff(want, values(t, &curves, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	curves.add(now, &training.TrainerStatus{Metrics: []training.TrainerMetric{{Name: "loss", Value: "20"}}})
	if diff := cmp.Diff([]float64{1, 2, 10, 20}, values(t, &curves, "loss")); diff != "" {
		t.Errorf("loss after another report (-want +got):\n%s", diff)
	}
	newest := curves.Since(now.Add(-time.Second))
	if want := []protocol.Curve{{Name: "loss", Points: []protocol.Point{point(20, 20)}}}; cmp.Diff(want, newest) != "" {
		t.Errorf("the newest points (-want +got):\n%s", cmp.Diff(want, newest))
	}
}

// Many points of many curves stay within the bounds.
func TestRestoredCurvesAreBounded(t *testing.T) {
	var kept []protocol.Curve
	for metric := range 2 * protocol.MaxCurves {
		one := protocol.Curve{Name: fmt.Sprint(metric)}
		for i := range 3 * protocol.MaxPoints {
			one.Points = append(one.Points, protocol.Point{Milliseconds: int64(i), Value: float64(i)})
		}
		kept = append(kept, one)
	}
	var curves Curves
	curves.Restore(kept, start)
	all := curves.All()
	if len(all) != protocol.MaxCurves {
		t.Errorf("%d curves, want %d", len(all), protocol.MaxCurves)
	}
	for _, one := range all {
		if last := one.Points[len(one.Points)-1]; len(one.Points) > protocol.MaxPoints+1 || last.Value != 3*protocol.MaxPoints-1 {
			t.Errorf("%s has %d points, the last is %v", one.Name, len(one.Points), last)
		}
	}
}

// The API server accepts 0 to 100 only, and would refuse every write of the status.
func TestPercentageOfManySteps(t *testing.T) {
	var training Training
	training.Add(time.Now(), steps(math.MaxInt64/10*9, math.MaxInt64))
	if got := *training.Status().ProgressPercentage; got != 90 {
		t.Errorf("%d %%, want 90", got)
	}
}
