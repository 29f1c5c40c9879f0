package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trireme-mpi/trireme/bench/report"
)

// Names of groups and measures, in the table and for goals.
const (
	burstGroup = "burst"
	largeGroup = "large"

	timeToPods     = "time to all pods"
	timeToSubmit   = "time to submit"
	requestsPerJob = "requests per job"
)

// compare measures bursts and large jobs. Every contestant has a new cluster in every
// repetition, and each repetition turns the order round: what the machine does beside
// hits no one of them more than others.
func compare(ctx context.Context, place place, settings settings, taking []contestant, results *report.Report) error {
	results.Bases[burstGroup], results.Bases[largeGroup] = triremeOfMPI, triremeOfMPI
	recordings, err := recordAll(ctx, place, settings, taking)
	if err != nil {
		return err
	}
	for repetition := range settings.repetitions {
		for _, contestant := range taking {
			progress("repetition %d: %s", repetition+1, contestant.name)
			if err := compareOne(ctx, place, settings, contestant, recordings[contestant.recorded], results); err != nil {
				return err
			}
		}
		slices.Reverse(taking)
	}
	return nil
}

// recordAll records what bare clients will make.
func recordAll(ctx context.Context, place place, settings settings, taking []contestant) (map[string]map[int]recording, error) {
	var sizes []int
	if settings.has(burstGroup) {
		sizes = append(sizes, settings.burst.workers)
	}
	if settings.has(largeGroup) {
		sizes = append(sizes, settings.sizes...)
	}
	slices.Sort(sizes)
	recordings := map[string]map[int]recording{}
	for _, bare := range taking {
		for _, contestant := range contestants() {
			if bare.recorded != contestant.name {
				continue
			}
			progress("record what %s makes", contestant.name)
			recorded, err := record(ctx, place, contestant, slices.Compact(sizes))
			if err != nil {
				return nil, fmt.Errorf("record %s: %w", contestant.name, err)
			}
			recordings[contestant.name] = recorded
		}
	}
	return recordings, nil
}

func compareOne(ctx context.Context, place place, settings settings, contestant contestant, recordings map[int]recording, results *report.Report) (err error) {
	running, err := open(ctx, place, contestant)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	if settings.has(burstGroup) {
		if err := running.add(ctx, burstGroup, contestant, settings.burst, recordings, results); err != nil {
			return err
		}
	}
	if !settings.has(largeGroup) {
		return nil
	}
	for _, workers := range settings.sizes {
		if contestant.slow && workers > settings.slowUpTo {
			continue
		}
		if err := running.add(ctx, largeGroup, contestant, load{jobs: 1, workers: workers}, recordings, results); err != nil {
			return err
		}
	}
	return nil
}

// add measures one load, and adds it to the results.
func (cluster *cluster) add(ctx context.Context, group string, contestant contestant, load load, recordings map[int]recording, results *report.Report) error {
	outcome, err := cluster.measure(ctx, contestant, load, recordings[load.workers])
	if err != nil {
		return fmt.Errorf("%s: %s: %w", contestant.name, load, err)
	}
	note := func(measure, unit string, value float64) {
		results.Add(report.Result{Group: group, Case: load.String(), Contestant: contestant.name, Measure: measure, Unit: unit}, value)
	}
	jobs := float64(load.jobs)
	note(timeToPods, "s", outcome.allPods)
	if contestant.recorded == "" {
		note(timeToSubmit, "s", outcome.submitted)
	}
	note(requestsPerJob, "", outcome.requests.sum(isWork)/jobs)
	verbs := outcome.requests.byVerb()
	for _, verb := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "LIST"} {
		note("of them "+verb, "", verbs[verb]/jobs)
	}
	note("events per job", "", outcome.requests.sum(isEvent)/jobs)
	if contestant.recorded == "" {
		note("CPU of controllers", "s", outcome.cpu)
		note("peak memory of controllers", "MiB", outcome.peak)
		note("size of a job", "B", float64(outcome.jobBytes))
	}
	progress("%s: %s: %.2f s to all pods (%.2f s to submit), %.2f s of CPU: %s", contestant.name, load, outcome.allPods, outcome.submitted, outcome.cpu, outcome.requests)
	return nil
}
