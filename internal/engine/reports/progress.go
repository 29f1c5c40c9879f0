// SPDX-License-Identifier: Apache-2.0

// Package reports turns the reports of running jobs into their status: what a training
// reports of its progress, how it develops, who may report, and how often the status of
// jobs may be written because of reports.
//
// The package is pure: no client, no clock, no randomness.
package reports

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// message is the body of a report of Kubeflow Trainer's protocol.
type message struct {
	TrainerStatus *training.TrainerStatus `json:"trainerStatus"`
}

// Parse reads a report of Kubeflow Trainer's protocol. Unknown fields are ignored, as
// Trainer does: programs may know newer versions of the protocol.
func Parse(body []byte) (*protocol.Progress, error) {
	var report message
	if err := json.Unmarshal(body, &report); err != nil {
		return nil, fmt.Errorf("the body is not a report: %w", err)
	}
	status := report.TrainerStatus
	if status == nil {
		return nil, fmt.Errorf(`the body has no trainerStatus: send {"trainerStatus": {"progressPercentage": 45}}`)
	}
	progress := &protocol.Progress{Step: status.Step, Percentage: status.ProgressPercentage, RemainingSeconds: status.EstimatedRemainingSeconds}
	if status.TotalSteps != nil {
		progress.Of = *status.TotalSteps
	}
	for _, metric := range status.Metrics {
		progress.Metrics = append(progress.Metrics, protocol.Metric{Name: metric.Name, Value: metric.Value})
	}
	return progress, Check(progress)
}

// Check returns what is wrong with a progress.
func Check(progress *protocol.Progress) error {
	switch {
	case progress.Step != nil && *progress.Step < 0:
		return fmt.Errorf("step is %d; it must be 0 or greater", *progress.Step)
	case progress.Of < 0:
		return fmt.Errorf("totalSteps is %d; it must be 0 or greater", progress.Of)
	case progress.Percentage != nil && (*progress.Percentage < 0 || *progress.Percentage > 100):
		return fmt.Errorf("progressPercentage is %d; it must be between 0 and 100", *progress.Percentage)
	case progress.RemainingSeconds != nil && *progress.RemainingSeconds < 0:
		return fmt.Errorf("estimatedRemainingSeconds is %d; it must be 0 or greater", *progress.RemainingSeconds)
	case len(progress.Metrics) > protocol.MaxMetrics:
		return fmt.Errorf("metrics has %d entries; at most %d are allowed", len(progress.Metrics), protocol.MaxMetrics)
	}
	known := map[string]bool{}
	for i, metric := range progress.Metrics {
		name, value := utf8.RuneCountInString(metric.Name), utf8.RuneCountInString(metric.Value)
		switch {
		case name == 0 || name > protocol.MaxMetricLength:
			return fmt.Errorf("metrics[%d].name has %d characters; it must have 1 to %d", i, name, protocol.MaxMetricLength)
		case value > protocol.MaxMetricLength:
			return fmt.Errorf("metrics[%d].value of %q has %d characters; at most %d are allowed", i, metric.Name, value, protocol.MaxMetricLength)
		case known[metric.Name]:
			return fmt.Errorf("metrics[%d].name is %q, which appears twice", i, metric.Name)
		}
		known[metric.Name] = true
	}
	return nil
}

// Training is what a training has reported so far. The zero value has reported nothing.
type Training struct {
	// Curves are the metrics over time.
	Curves Curves

	status *training.TrainerStatus
	// steps are the last steps and when they were reported, for the estimate.
	steps []stepAt
}

type stepAt struct {
	step int64
	at   time.Time
}

// maxSteps is how many reports the remaining time is estimated from.
const maxSteps = 16

// Add adds a report that was received at a time.
func (t *Training) Add(at time.Time, progress *protocol.Progress) {
	status := &training.TrainerStatus{
		Step: progress.Step, ProgressPercentage: progress.Percentage, EstimatedRemainingSeconds: progress.RemainingSeconds,
		LastUpdatedTime: &metav1.Time{Time: at.Truncate(time.Second)},
	}
	if t.status != nil {
		// A program may report its steps and its metrics in different lines.
		keepUnset(status, t.status)
	}
	if progress.Of > 0 {
		status.TotalSteps = new(progress.Of)
	}
	status.Metrics = t.merged(progress.Metrics)
	if progress.Step != nil {
		t.addStep(stepAt{*progress.Step, at})
	}
	t.estimate(status, progress)
	t.status = status
	t.Curves.add(at, status)
}

// keepUnset keeps the step and the number of steps of the last report.
func keepUnset(status, last *training.TrainerStatus) {
	if status.Step == nil {
		status.Step = last.Step
	}
	status.TotalSteps = last.TotalSteps
}

// merged are the reported metrics, and those of earlier reports.
func (t *Training) merged(reported []protocol.Metric) []training.TrainerMetric {
	var metrics []training.TrainerMetric
	known := map[string]bool{}
	for _, metric := range reported {
		known[metric.Name] = true
		metrics = append(metrics, training.TrainerMetric{Name: metric.Name, Value: metric.Value})
	}
	if t.status != nil {
		for _, metric := range t.status.Metrics {
			if !known[metric.Name] && len(metrics) < protocol.MaxMetrics {
				metrics = append(metrics, metric)
			}
		}
	}
	return metrics
}

func (t *Training) addStep(step stepAt) {
	if last := len(t.steps) - 1; last >= 0 {
		if step.step < t.steps[last].step {
			t.steps = nil // the program counts from the beginning
		} else if step.step == t.steps[last].step {
			return
		}
	}
	t.steps = append(t.steps, step)
	if len(t.steps) > maxSteps {
		t.steps = t.steps[1:]
	}
}

// estimate calculates what the program does not report itself.
func (t *Training) estimate(status *training.TrainerStatus, progress *protocol.Progress) {
	if status.Step == nil || status.TotalSteps == nil || *status.TotalSteps == 0 {
		return
	}
	left := max(*status.TotalSteps-*status.Step, 0)
	if progress.Percentage == nil {
		status.ProgressPercentage = new(int32(min(100*float64(*status.TotalSteps-left)/float64(*status.TotalSteps), 100)))
	}
	if progress.RemainingSeconds != nil {
		return
	}
	if len(t.steps) < 2 {
		if left == 0 {
			status.EstimatedRemainingSeconds = new(int64(0))
		}
		return
	}
	first, last := t.steps[0], t.steps[len(t.steps)-1]
	perStep := last.at.Sub(first.at).Seconds() / float64(last.step-first.step)
	status.EstimatedRemainingSeconds = new(int64(min(math.Ceil(perStep*float64(left)), math.MaxInt32)))
}

// Status is the last status; nil if nothing was reported.
func (t *Training) Status() *training.TrainerStatus { return t.status }
