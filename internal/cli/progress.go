// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/api/training"
)

// barWidth is the number of characters of a progress bar.
const barWidth = 20

// maxShownMetrics is how many metrics describe shows.
const maxShownMetrics = 8

// progressCell is the progress of a job in a table.
func progressCell(j *view) string {
	status := j.TrainerStatus
	switch {
	case status == nil:
		return "-"
	case status.ProgressPercentage != nil:
		return fmt.Sprintf("%d%%", *status.ProgressPercentage)
	case status.Step != nil:
		return fmt.Sprintf("step %d", *status.Step)
	}
	return "-"
}

// progress shows the reported progress of a job, and its ranks.
func (d *description) progress(j *view) {
	if status := j.TrainerStatus; status != nil {
		d.field("Progress", d.progressLine(j, status))
		d.field("Metrics", metricsLine(status))
	}
	if ranks := j.Ranks; ranks != nil && !j.Finished() {
		d.field("Ranks", fmt.Sprintf("%d of %d running", ranks.Running, ranks.Total))
	}
	if j.Stalled.Yes {
		d.field("Stalled", d.terminal.paint(red, j.Stalled.Message))
		for _, odd := range oddRanks(j) {
			d.field("", oddRank(odd))
		}
	}
}

func (d *description) progressLine(j *view, status *training.TrainerStatus) string {
	text := progressText(j, status)
	if percentage := status.ProgressPercentage; percentage != nil {
		text = bar(*percentage, 100, barWidth) + " " + text
	}
	if updated := status.LastUpdatedTime; updated != nil && !j.Finished() {
		text += fmt.Sprintf(", reported %s ago", age(d.now, updated.Time))
	}
	return text
}

// progressText is how far a training is: 45%, step 45 of 100, about 2m0s left.
func progressText(j *view, status *training.TrainerStatus) string {
	var parts []string
	if percentage := status.ProgressPercentage; percentage != nil {
		parts = append(parts, fmt.Sprintf("%d%%", *percentage))
	}
	switch {
	case status.Step != nil && status.TotalSteps != nil:
		parts = append(parts, fmt.Sprintf("step %d of %d", *status.Step, *status.TotalSteps))
	case status.Step != nil:
		parts = append(parts, fmt.Sprintf("step %d", *status.Step))
	}
	if left := status.EstimatedRemainingSeconds; left != nil && !j.Finished() {
		parts = append(parts, fmt.Sprintf("about %s left", time.Duration(*left)*time.Second))
	}
	return strings.Join(parts, ", ")
}

func metricsLine(status *training.TrainerStatus) string {
	var parts []string
	for _, metric := range status.Metrics[:min(len(status.Metrics), maxShownMetrics)] {
		parts = append(parts, metric.Name+"="+metric.Value)
	}
	slices.Sort(parts)
	if more := len(status.Metrics) - maxShownMetrics; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

func oddRank(odd training.OddRank) string {
	text := fmt.Sprintf("rank %d", odd.Rank)
	if odd.Host != "" {
		text += " on " + odd.Host
	}
	if odd.Doing != "" {
		text += ": " + odd.Doing
	}
	if odd.WaitsFor != "" {
		text += ", waits for " + odd.WaitsFor
	}
	return text
}

func oddRanks(j *view) []training.OddRank {
	if j.Ranks == nil {
		return nil
	}
	return j.Ranks.Odd
}
