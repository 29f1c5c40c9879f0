// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/bench/report"
)

// Of every step it is the last rank that counts.
func TestReadStamps(t *testing.T) {
	log := "Warning: something of mpirun's\nstamps 1 10 40 50\nstamps 0 20 30 60\n"
	stamps, err := readStamps(log, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{20, 40, 60} {
		if got := stamps[i].UnixNano(); got != want {
			t.Errorf("step %d was over at %d, want %d", i, got, want)
		}
	}
	if _, err := readStamps(log, 3); err == nil || !strings.Contains(err.Error(), "2 of 3 ranks") {
		t.Errorf("a rank that has printed nothing is not missed: %v", err)
	}
}

func TestPercentile(t *testing.T) {
	samples := []float64{5, 1, 2, 4, 3}
	for percent, want := range map[float64]float64{50: 3, 90: 5, 95: 5, 20: 1} {
		if got := percentile(samples, percent); got != want {
			t.Errorf("p%.0f is %v, want %v", percent, got, want)
		}
	}
}

// Two MiB in half an hour are four in an hour, whatever one sample between says.
func TestSlope(t *testing.T) {
	begin := time.Now()
	var prints []footprint
	for i, memory := range []float64{10, 11, 12} {
		prints = append(prints, footprint{at: begin.Add(time.Duration(i) * 15 * time.Minute), memory: memory})
	}
	if got := slope(prints, func(print footprint) float64 { return print.memory }); math.Abs(got-4) > 1e-9 {
		t.Errorf("the slope is %v, want 4", got)
	}
}

// A container's times are those of its own process, not of a probe that ran in it.
func TestContainerEvents(t *testing.T) {
	watcher := &watcher{started: map[string]time.Time{}, exited: map[string]time.Time{}}
	watcher.readContainers(strings.NewReader(`2026-11-15 19:22:10.5 +0000 UTC k8s.io /tasks/start {"container_id":"a","pid":5826}
2026-11-15 19:22:11.5 +0000 UTC k8s.io /tasks/exit {"container_id":"a","id":"probe","pid":1,"exited_at":{"seconds":7,"nanos":1}}
2026-11-15 19:22:12.5 +0000 UTC k8s.io /tasks/exit {"container_id":"a","id":"a","pid":5826,"exited_at":{"seconds":8,"nanos":2}}
`))
	started, exited := watcher.containerTimes("a")
	if want := time.Date(2026, 11, 15, 19, 22, 10, 5e8, time.UTC); !started.Equal(want) {
		t.Errorf("it started at %s, want %s", started, want)
	}
	if want := time.Unix(8, 2); !exited.Equal(want) {
		t.Errorf("it ended at %s, want %s", exited, want)
	}
}

// What counts is when something was first seen, and each pod is its own job's.
func TestSightings(t *testing.T) {
	watcher := &watcher{pods: map[string]*podSightings{}}
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	for _, name := range []string{"mpi-2-1-launcher-x", "mpi-2-1-worker-0", "mpi-2-10-launcher-x"} {
		pod := &corev1.Pod{}
		pod.Name = name
		watcher.note(pod, first)
		pod.Spec.NodeName = "node"
		watcher.note(pod, second)
	}
	launcher, workers := watcher.podsOf("mpi-2-1")
	if launcher == nil || launcher.name != "mpi-2-1-launcher-x" || len(workers) != 1 {
		t.Fatalf("the pods are %+v and %+v", launcher, workers)
	}
	if !launcher.created.Equal(first) || !launcher.placed.Equal(second) {
		t.Errorf("it was created at %s and placed at %s", launcher.created, launcher.placed)
	}
}

// Twice the speed on two workers is all that there is to gain.
func TestJudgeDigits(t *testing.T) {
	bench := &bench{}
	for _, lesson := range lessons {
		for measure, value := range map[string]float64{digitsSpeed: 100 * float64(lesson.workers), digitsShare: 10} {
			if lesson.workers == 2 && lesson.batch == smallBatch && measure == digitsSpeed {
				value = 150
			}
			bench.report.Add(report.Result{Group: digitsGroup, Case: lesson.String(), Contestant: asTrainJob, Measure: measure}, value)
		}
	}
	bench.judgeDigits()
	met := map[bool]int{}
	for _, goal := range bench.report.Goals {
		met[goal.Met]++
	}
	if met[true] != 3 || met[false] != 1 || bench.report.Goals[0].Value != 75 {
		t.Errorf("the goals are %+v", bench.report.Goals)
	}
}

// What fills caches in the beginning is no leak; what grows on is one.
func TestJudgeSoak(t *testing.T) {
	for name, test := range map[string]struct {
		memory func(sample int) float64
		met    bool
	}{
		"settles": {func(sample int) float64 { return math.Min(50, 10*float64(sample)) }, true},
		"grows":   {func(sample int) float64 { return 50 + float64(sample) }, false},
	} {
		bench := &bench{}
		var prints []footprint
		for i := range 40 {
			prints = append(prints, footprint{at: time.Unix(int64(i)*20, 0), memory: test.memory(i), goroutines: 300})
		}
		bench.judgeSoak(prints, 100, 0)
		if goal := bench.report.Goals[0]; goal.Met != test.met {
			t.Errorf("%s: %+v", name, goal)
		}
		if failures := bench.report.Goals[2]; !failures.Met || failures.Value != 0 {
			t.Errorf("%s: %+v", name, failures)
		}
	}
}

// A leader that has just begun does not hide what the one before has lost.
func TestSoakOverALeadersEnd(t *testing.T) {
	bench := &bench{}
	var prints []footprint
	for i := range 60 {
		print := footprint{at: time.Unix(int64(i)*20, 0), process: "first", memory: 50 + float64(i), goroutines: 300}
		if i >= 40 {
			print.process, print.memory = "second", 50
		}
		prints = append(prints, print)
	}
	bench.judgeSoak(prints, 100, 0)
	if goal := bench.report.Goals[0]; goal.Met {
		t.Errorf("the first process lost memory until it ended: %+v", goal)
	}
	if changes, _ := bench.report.Find(soakGroup, "0s", "Trireme", "changes of the operator's leader"); changes.Median() != 1 {
		t.Errorf("the leader changed %v times", changes.Samples)
	}
}

func TestReadHorovod(t *testing.T) {
	speed, err := readHorovod("trireme: 2 workers reached in 0.06 s\nrank 0 of 2 on h-worker-0, user 1000680000\nhorovod 3136.7\n")
	if err != nil || speed != 3136.7 {
		t.Errorf("it reads %v, %v", speed, err)
	}
	if _, err := readHorovod("Traceback (most recent call last):\nModuleNotFoundError: No module named 'horovod'\n"); err == nil {
		t.Error("a training that says nothing of its speed is one")
	}
}
