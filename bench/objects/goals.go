// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/trireme-mpi/trireme/bench/report"
)

// ratio is one contestant's median as a multiple of another's, if both were measured.
func ratio(results report.Report, group, example, measure, one, other string) (float64, bool) {
	above, isThere := results.Find(group, example, one, measure)
	below, isThereToo := results.Find(group, example, other, measure)
	if !isThere || !isThereToo || below.Median() == 0 {
		return 0, false
	}
	return above.Median() / below.Median(), true
}

// goals are those of what was measured.
func goals(results report.Report, settings settings) []report.Goal {
	var found []report.Goal
	burst := settings.burst.String()
	for _, goal := range []struct {
		text, measure, one, other string
		judge                     func(string, float64, float64) report.Goal
		limit                     float64
	}{
		{"burst: mpi-operator's time as a multiple of Trireme's", timeToPods, mpiOperator, triremeOfMPI, report.AtLeast, 10},
		{"burst: Trireme's time as a multiple of tuned mpi-operator's", timeToPods, triremeOfMPI, mpiOperatorTuned, report.AtMost, 1},
		{"burst: Trireme's time as a multiple of the bare client's", timeToPods, triremeOfMPI, bareMPIJob, report.AtMost, 1.15},
		{"burst: Trireme's requests as a multiple of tuned mpi-operator's", requestsPerJob, triremeOfMPI, mpiOperatorTuned, report.AtMost, 0.6},
		{"burst: TrainJob's time as a multiple of Trainer's", timeToPods, triremeOfTrain, trainer, report.AtMost, 0.5},
		{"burst: TrainJob's time as a multiple of the bare client's", timeToPods, triremeOfTrain, bareTrainJob, report.AtMost, 1.3},
		{"burst: TrainJob's time as a multiple of MPIJob's", timeToPods, triremeOfTrain, triremeOfMPI, report.AtMost, 1.2},
		{"burst: TrainJob's memory as a multiple of MPIJob's", peakMemory, triremeOfTrain, triremeOfMPI, report.AtMost, 1.3},
		{"burst: TrainJob's time beside JobSet as a multiple of MPIJob's", timeToPods, triremeBeside, triremeOfMPI, report.AtMost, 1.2},
	} {
		if value, ok := ratio(results, burstGroup, burst, goal.measure, goal.one, goal.other); ok {
			found = append(found, goal.judge(goal.text, value, goal.limit))
		}
	}
	if result, ok := results.Find(burstGroup, burst, triremeOfTrain, requestsPerJob); ok {
		found = append(found, report.AtMost("burst: TrainJob's requests a job", result.Median(), 20))
	}
	for _, workers := range settings.sizes {
		if value, ok := ratio(results, largeGroup, load{jobs: 1, workers: workers}.String(), timeToPods, triremeOfTrain, triremeOfMPI); ok {
			found = append(found, report.AtMost(fmt.Sprintf("%d workers: TrainJob's time as a multiple of MPIJob's", workers), value, 1.2))
		}
	}
	for _, jobs := range settings.rest {
		if result, ok := results.Find(restGroup, fmt.Sprintf("%d jobs", jobs), triremeOfMPI, writesAtRest); ok {
			_, most := result.Spread()
			found = append(found, report.AtMost(fmt.Sprintf("%d jobs at rest: Trireme's writes a minute", jobs), most, 0))
		}
	}
	if value, ok := ratio(results, lifeGroup, settings.life().String(), requestsPerJob, triremeOfMPI, mpiOperatorTuned); ok {
		found = append(found, report.AtMost("submit to end: Trireme's requests as a multiple of tuned mpi-operator's", value, 0.6))
	}
	for _, measure := range []string{timeToPods, cpuOfControllers, requestsPerJob} {
		var sizes []load
		for _, workers := range settings.sizes {
			sizes = append(sizes, load{jobs: 1, workers: workers})
		}
		found = append(found, linearity(results, largeGroup, triremeOfMPI, measure, "workers", sizes, func(load load) int { return load.workers })...)
		if measure != requestsPerJob {
			found = append(found, linearity(results, burstGroup, triremeOfMPI, measure, "jobs", settings.bursts(), func(load load) int { return load.jobs })...)
		}
	}
	return found
}

// machine is what the numbers depend on.
func machine(place place) map[string]string {
	found := map[string]string{
		"kube-controller-manager": strings.Join(managerLimits, " "),
		"JobSet":                  fmt.Sprintf("v0.12.0, %d requests a second, for Trireme and Trainer", jobSetQPS),
		"mpi-operator":            "v0.8.2",
		"Trainer":                 "v2.3.0",
		"load before":             firstLine("/proc/loadavg"),
	}
	var name syscall.Utsname
	if err := syscall.Uname(&name); err == nil {
		found["kernel"] = text(name.Release[:])
	}
	if output, err := exec.Command(filepath.Join(place.kubernetes, "kube-apiserver"), "--version").Output(); err == nil {
		found["API server"] = strings.TrimSpace(string(output))
	}
	for line := range strings.Lines(read("/proc/cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			found["processor"] = strings.TrimSpace(value)
		}
	}
	found["memory"] = strings.TrimSpace(strings.TrimPrefix(firstLine("/proc/meminfo"), "MemTotal:"))
	found["cores"] = fmt.Sprint(strings.Count(read("/proc/cpuinfo"), "processor\t:"))
	return found
}

func read(path string) string {
	content, _ := os.ReadFile(path)
	return string(content)
}

func firstLine(path string) string {
	line, _, _ := strings.Cut(read(path), "\n")
	return line
}

// text is a C string.
func text(characters []int8) string {
	var built strings.Builder
	for _, character := range characters {
		if character == 0 {
			break
		}
		built.WriteByte(byte(character))
	}
	return built.String()
}
