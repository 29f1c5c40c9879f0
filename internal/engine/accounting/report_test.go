// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const hour = 3600

// usingGPUs is a job that waits for an hour, is idle for an hour and runs for two hours, from begin on.
func usingGPUs(group Group, gpus float64, begin int, failed bool) Job {
	edge := func(hours int) int { return begin + hours*hour }
	return Job{Group: group, GPUs: gpus, CPUs: 10 * gpus, Failed: failed, Periods: Periods{
		Waiting: {at(edge(0)), at(edge(1))}, Idle: {at(edge(1)), at(edge(2))}, Running: {at(edge(2)), at(edge(4))},
	}}
}

func TestReport(t *testing.T) {
	jobs := []Job{
		usingGPUs(Group{"vision", "ada", "main"}, 1, 0, false),
		usingGPUs(Group{"vision", "bob", "main"}, 2, 0, true),
		usingGPUs(Group{"speech", "ada", ""}, 4, 0, false),
		usingGPUs(Group{"speech", "eve", ""}, 8, 100*hour, false),
	}
	hours := func(waiting, idle, used, failed float64) (Hours, Hours) {
		of := func(factor float64) Hours {
			return Hours{Requested: factor * (waiting + idle + used), Waiting: factor * waiting, Idle: factor * idle, Used: factor * used, Failed: factor * failed}
		}
		return of(1), of(10)
	}
	line := func(group Group, jobs int, waiting, idle, used, failed float64) Line {
		gpus, cpus := hours(waiting, idle, used, failed)
		return Line{Group: group, Jobs: jobs, GPUHours: gpus, CPUHours: cpus}
	}
	for name, test := range map[string]struct {
		by       []Key
		from, to int
		want     []Line
	}{
		"all keys": {Keys, 0, 10 * hour, []Line{
			line(Group{"speech", "ada", ""}, 1, 4, 4, 8, 0), line(Group{"vision", "bob", "main"}, 1, 2, 2, 4, 4), line(Group{"vision", "ada", "main"}, 1, 1, 1, 2, 0),
		}},
		"by namespace":       {[]Key{ByNamespace}, 0, 10 * hour, []Line{line(Group{Namespace: "speech"}, 1, 4, 4, 8, 0), line(Group{Namespace: "vision"}, 2, 3, 3, 6, 4)}},
		"by user":            {[]Key{ByUser}, 0, 10 * hour, []Line{line(Group{User: "ada"}, 2, 5, 5, 10, 0), line(Group{User: "bob"}, 1, 2, 2, 4, 4)}},
		"a part of the time": {[]Key{ByQueue}, hour / 2, 3 * hour, []Line{line(Group{}, 1, 2, 4, 4, 0), line(Group{Queue: "main"}, 2, 1.5, 3, 3, 2)}},
		"before all jobs":    {Keys, -hour, 0, []Line{}},
	} {
		lines, total := Report(jobs, at(test.from), at(test.to), test.by)
		if diff := cmp.Diff(test.want, lines); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		sum := Line{}
		for _, line := range test.want {
			sum.Jobs += line.Jobs
			sum.GPUHours.Requested += line.GPUHours.Requested
			sum.CPUHours.Used += line.CPUHours.Used
		}
		if total.Jobs != sum.Jobs || total.GPUHours.Requested != sum.GPUHours.Requested || total.CPUHours.Used != sum.CPUHours.Used {
			t.Errorf("%s: the total is %+v, want %+v", name, total, sum)
		}
	}
}
