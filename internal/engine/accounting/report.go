// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"cmp"
	"slices"
	"time"
)

// Job is what a report needs of a job.
type Job struct {
	Group
	// Failed jobs have nothing to show for the time that they ran.
	Failed     bool
	GPUs, CPUs float64
	Periods    Periods
}

// Group is what the lines of a report differ in. Fields that a report is not grouped by
// are empty.
type Group struct {
	Namespace string `json:"namespace,omitempty"`
	User      string `json:"user,omitempty"`
	Queue     string `json:"queue,omitempty"`
}

// Hours are resource hours: the resources that jobs request, times the time.
type Hours struct {
	// Requested is the sum of Waiting, Idle and Used.
	Requested float64 `json:"requested"`
	Waiting   float64 `json:"waiting"`
	Idle      float64 `json:"idle"`
	Used      float64 `json:"used"`
	// Failed is the part of Used that belongs to jobs that failed.
	Failed float64 `json:"failed"`
}

// Line is a line of a report.
type Line struct {
	Group
	// Jobs is how many jobs were waiting, idle or running in the range.
	Jobs     int   `json:"jobs"`
	GPUHours Hours `json:"gpuHours"`
	CPUHours Hours `json:"cpuHours"`
}

// Key is something that a report is grouped by.
type Key string

const (
	ByNamespace Key = "namespace"
	ByUser      Key = "user"
	ByQueue     Key = "queue"
)

// Keys are all keys.
var Keys = []Key{ByNamespace, ByUser, ByQueue}

// Report adds up what jobs did in a range of time, one line for each group, and the
// total. The group with the most GPU-hours comes first, then the one with the most
// CPU-hours.
func Report(jobs []Job, from, to time.Time, by []Key) (lines []Line, total Line) {
	groups := map[Group]*Line{}
	for i := range jobs {
		group := jobs[i].by(by)
		if groups[group] == nil {
			groups[group] = &Line{Group: group}
		}
		groups[group].add(&jobs[i], from, to)
		total.add(&jobs[i], from, to)
	}
	lines = []Line{}
	for _, line := range groups {
		if line.Jobs > 0 {
			lines = append(lines, *line)
		}
	}
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.GPUHours.Requested, a.GPUHours.Requested), cmp.Compare(b.CPUHours.Requested, a.CPUHours.Requested),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.User, b.User), cmp.Compare(a.Queue, b.Queue))
	})
	return lines, total
}

// by is the group of a job, with only these keys.
func (j *Job) by(keys []Key) (group Group) {
	for _, key := range keys {
		switch key {
		case ByNamespace:
			group.Namespace = j.Namespace
		case ByUser:
			group.User = j.User
		case ByQueue:
			group.Queue = j.Queue
		}
	}
	return group
}

// add adds what a job did in a range.
func (l *Line) add(j *Job, from, to time.Time) {
	present := false
	for _, state := range States {
		hours := j.Periods[state].Within(from, to).Length().Hours()
		present = present || hours > 0
		l.GPUHours.add(state, j.GPUs*hours, j.Failed)
		l.CPUHours.add(state, j.CPUs*hours, j.Failed)
	}
	if present {
		l.Jobs++
	}
}

func (h *Hours) add(state State, hours float64, failed bool) {
	h.Requested += hours
	switch state {
	case Waiting:
		h.Waiting += hours
	case Idle:
		h.Idle += hours
	case Running:
		h.Used += hours
		if failed {
			h.Failed += hours
		}
	}
}
