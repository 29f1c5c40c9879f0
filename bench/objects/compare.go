// SPDX-License-Identifier: Apache-2.0

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
	lifeGroup  = "life"

	timeToPods       = "time to all pods"
	timeToSubmit     = "time to submit"
	requestsPerJob   = "requests per job"
	cpuOfControllers = "CPU of controllers"
	peakMemory       = "peak memory of controllers"
)

// compare measures bursts and large jobs. Every contestant has a new cluster in every
// repetition, and each repetition turns the order round: what the machine does beside
// hits no one of them more than others.
func compare(ctx context.Context, place place, settings settings, taking []contestant, results *report.Report) error {
	for _, group := range []string{burstGroup, largeGroup, lifeGroup} {
		results.Bases[group] = triremeOfMPI
	}
	recordings, err := recordAll(ctx, place, settings, taking)
	if err != nil {
		return err
	}
	var failures []error
	for repetition := range settings.repetitions {
		for _, contestant := range taking {
			if contestant.slow && repetition >= settings.slowRepetitions {
				continue
			}
			progress("repetition %d: %s", repetition+1, contestant.name)
			// What fails keeps no other from being measured.
			if err := compareOne(ctx, place, settings, contestant, recordings[contestant.recorded], results); err != nil {
				progress("%v", err)
				failures = append(failures, err)
			}
			if ctx.Err() != nil {
				return errors.Join(failures...)
			}
		}
		slices.Reverse(taking)
	}
	return errors.Join(failures...)
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
		for _, load := range settings.bursts() {
			// The smaller ones are for Trireme's own line.
			if load != settings.burst && contestant.name != triremeOfMPI {
				continue
			}
			if err := running.add(ctx, burstGroup, contestant, load, recordings, results); err != nil {
				return err
			}
		}
	}
	// With lower limits it does the same, only later.
	if settings.has(lifeGroup) && contestant.recorded == "" && !contestant.slow {
		if err := running.addLife(ctx, contestant, settings.life(), results); err != nil {
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
	note(timeToPods, "s", outcome.allPods)
	if contestant.recorded == "" {
		note(timeToSubmit, "s", outcome.submitted)
	}
	noteRequests(note, outcome.requests, load.jobs)
	note("CPU of Kubernetes until then", "s", outcome.kubernetesCPU)
	if contestant.recorded == "" {
		note(cpuOfControllers, "s", outcome.cpu)
		note(peakMemory, "MiB", outcome.peak)
		note("size of a job", "B", float64(outcome.jobBytes))
	}
	progress("%s: %s: %.2f s to all pods (%.2f s to submit), %.2f s of CPU, %.2f s of Kubernetes': %s", contestant.name, load, outcome.allPods, outcome.submitted, outcome.cpu, outcome.kubernetesCPU, outcome.requests)
	return nil
}

// noteRequests tells what was asked of the API server for each job.
func noteRequests(note func(measure, unit string, value float64), counted requests, jobs int) {
	note(requestsPerJob, "", counted.sum(isWork)/float64(jobs))
	note("without endpoints of Services", "", counted.sum(func(request request) bool { return isWork(request) && !isOfServices(request) })/float64(jobs))
	verbs := counted.byVerb()
	for _, verb := range []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "GET", "LIST"} {
		note("of them "+verb, "", verbs[verb]/float64(jobs))
	}
	note("events per job", "", counted.sum(isEvent)/float64(jobs))
}

// addLife counts what one job costs from its submission to its end: its pods start one
// after the other, and the launcher ends well.
func (cluster *cluster) addLife(ctx context.Context, contestant contestant, load load, results *report.Report) error {
	before, err := cluster.contestantRequests(ctx)
	if err != nil {
		return err
	}
	if _, err := cluster.live(ctx, contestant, endedLife, load.workers); err != nil {
		return fmt.Errorf("%s: a job's life: %w", contestant.name, err)
	}
	after, err := cluster.contestantRequests(ctx)
	if err != nil {
		return err
	}
	counted := after.minus(before)
	noteRequests(func(measure, unit string, value float64) {
		results.Add(report.Result{Group: lifeGroup, Case: load.String(), Contestant: contestant.name, Measure: measure, Unit: unit}, value)
	}, counted, load.jobs)
	progress("%s: life of %s: %s", contestant.name, load, counted)
	return nil
}
