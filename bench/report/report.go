// SPDX-License-Identifier: Apache-2.0

// Package report is the one form of all measurements: programs of the benchmark
// write it, and it prints itself.
package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// A Sample is what one repetition measured.
type Sample = float64

// A Result is one measure of one contestant, a sample for each repetition.
type Result struct {
	Group      string   `json:"group"`
	Case       string   `json:"case"`
	Contestant string   `json:"contestant"`
	Measure    string   `json:"measure"`
	Unit       string   `json:"unit"`
	Samples    []Sample `json:"samples"`
	Note       string   `json:"note,omitempty"`
}

// Median is the middle of the samples: one that a busy machine spoilt does not
// move it.
func (result Result) Median() float64 {
	sorted := slices.Sorted(slices.Values(result.Samples))
	middle := len(sorted) / 2
	switch {
	case len(sorted) == 0:
		return 0
	case len(sorted)%2 == 1:
		return sorted[middle]
	default:
		return (sorted[middle-1] + sorted[middle]) / 2
	}
}

// Spread is the lowest and the highest sample.
func (result Result) Spread() (low, high float64) {
	if len(result.Samples) == 0 {
		return 0, 0
	}
	return slices.Min(result.Samples), slices.Max(result.Samples)
}

// A Goal is a promise, and what was measured of it.
type Goal struct {
	Text  string  `json:"text"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	// AtMost: the value may not exceed the limit. Else it may not be below.
	AtMost bool `json:"atMost"`
	Met    bool `json:"met"`
}

// AtMost is a goal that a value above the limit misses.
func AtMost(text string, value, limit float64) Goal {
	return Goal{Text: text, Value: value, Limit: limit, AtMost: true, Met: value <= limit}
}

// AtLeast is a goal that a value below the limit misses.
func AtLeast(text string, value, limit float64) Goal {
	return Goal{Text: text, Value: value, Limit: limit, Met: value >= limit}
}

// A Report is all that one run of the benchmark has to say.
type Report struct {
	// Machine is what the numbers depend on: processor, kernel, versions, limits.
	Machine map[string]string `json:"machine,omitempty"`
	Results []Result          `json:"results"`
	Goals   []Goal            `json:"goals,omitempty"`
	// Bases names, for each group, the contestant that the others are compared with.
	Bases map[string]string `json:"bases,omitempty"`
}

// Add appends a sample to its result, which is made if it is the first.
func (report *Report) Add(result Result, sample Sample) {
	for index := range report.Results {
		there := &report.Results[index]
		if there.Group == result.Group && there.Case == result.Case &&
			there.Contestant == result.Contestant && there.Measure == result.Measure {
			there.Samples = append(there.Samples, sample)
			return
		}
	}
	result.Samples = []Sample{sample}
	report.Results = append(report.Results, result)
}

// Find is the result of that name, if it was measured.
func (report Report) Find(group, example, contestant, measure string) (Result, bool) {
	for _, result := range report.Results {
		if result.Group == group && result.Case == example && result.Contestant == contestant && result.Measure == measure {
			return result, true
		}
	}
	return Result{}, false
}

// Merge makes one report of those that several programs wrote.
func Merge(reports ...Report) Report {
	merged := Report{Machine: map[string]string{}, Bases: map[string]string{}}
	for _, report := range reports {
		maps.Copy(merged.Machine, report.Machine)
		maps.Copy(merged.Bases, report.Bases)
		merged.Results = append(merged.Results, report.Results...)
		merged.Goals = append(merged.Goals, report.Goals...)
	}
	return merged
}

// Read reads a report that Write wrote.
func Read(path string) (Report, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Report{}, err
	}
	var report Report
	if err := json.Unmarshal(content, &report); err != nil {
		return Report{}, fmt.Errorf("%s: %w", path, err)
	}
	return report, nil
}

// Write writes the report as JSON, and makes the folder for it.
func (report Report) Write(path string) error {
	content, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}
