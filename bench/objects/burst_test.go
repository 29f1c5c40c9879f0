// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trireme-mpi/trireme/bench/report"
)

// A burst so small that it proves nothing but that the benchmark works, and that the
// bare client makes what the operator makes.
func TestSmallBurst(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	place, err := findPlace()
	if err != nil {
		t.Fatal(err)
	}
	place.programs, place.keep = t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(place.programs, "operator"), "./cmd/operator")
	build.Dir = place.repository
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the operator: %v\n%s", err, output)
	}
	quietPause = 500 * time.Millisecond
	settings, err := parseFlags([]string{"--groups", "burst", "--jobs", "4", "--workers", "2", "--repetitions", "1", "--contestants", bareMPIJob + "," + triremeOfMPI})
	if err != nil {
		t.Fatal(err)
	}
	results := report.Report{Bases: map[string]string{}}
	if err := measureAll(t.Context(), place, settings, &results); err != nil {
		t.Fatal(err)
	}
	for _, measure := range []string{timeToPods, requestsPerJob, "of them POST"} {
		for _, contestant := range []string{bareMPIJob, triremeOfMPI} {
			if result, ok := results.Find(burstGroup, "4 x 2", contestant, measure); !ok || result.Median() <= 0 {
				t.Errorf("%s of %s is %v", measure, contestant, result.Samples)
			}
		}
	}
	if value, ok := ratio(results, burstGroup, "4 x 2", "of them POST", triremeOfMPI, bareMPIJob); !ok || value < 0.8 || value > 1.2 {
		t.Errorf("Trireme creates %v times what the bare client creates", value)
	}
	if found := goals(results, settings); len(found) == 0 {
		t.Error("no goal was judged")
	}
}
