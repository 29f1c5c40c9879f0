// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/bench/report"
)

const (
	restGroup = "at rest"
	// restWorkers is how many workers each job at rest has.
	restWorkers = 2
	// restSeconds is how long nothing happens in one repetition.
	restSeconds = 10
	// restChanges is how many jobs end in one repetition, one after the other.
	restChanges = 100

	writesAtRest = "writes a minute"
	changeP50    = "a job's end to its status, p50"
	changeP99    = "a job's end to its status, p99"
)

// measureRest measures controllers of many jobs with which nothing happens: half of them have
// ended, half of them run. There is no kube-controller-manager: what is written is
// written by them.
func measureRest(ctx context.Context, place place, settings settings, taking []contestant, results *report.Report) error {
	results.Bases[restGroup] = triremeOfMPI
	var failures []error
	for _, contestant := range taking {
		if contestant.recorded != "" || contestant.slow {
			continue
		}
		// What fails keeps no other from being measured.
		if err := restOf(ctx, place, settings, contestant, results); err != nil {
			progress("%s: %v", contestant.name, err)
			failures = append(failures, fmt.Errorf("%s: %w", contestant.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}

func restOf(ctx context.Context, place place, settings settings, contestant contestant, results *report.Report) error {
	progress("at rest: %s: one job that has ended, and one that runs", contestant.name)
	ended, runs, err := recordLives(ctx, place, contestant)
	if err != nil {
		return err
	}
	for i, jobs := range settings.rest {
		// Over JobSet it takes long to make them: the first number is enough to see.
		if i > 0 && contestant.kind.name != mpiJob.name {
			break
		}
		if err := restOne(ctx, place, settings, contestant, jobs, []life{ended, runs}, results); err != nil {
			return fmt.Errorf("%d jobs at rest: %w", jobs, err)
		}
	}
	return nil
}

func restOne(ctx context.Context, place place, settings settings, contestant contestant, jobs int, lives []life, results *report.Report) (err error) {
	running, err := startCluster(place, contestant)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	began := time.Now()
	if err := running.seed(ctx, jobs, lives); err != nil {
		return err
	}
	progress("at rest: %s: %d jobs were there after %.0f s", contestant.name, jobs, time.Since(began).Seconds())
	note := func(measure, unit string, value float64) {
		results.Add(report.Result{Group: restGroup, Case: fmt.Sprintf("%d jobs", jobs), Contestant: contestant.name, Measure: measure, Unit: unit}, value)
	}
	before, err := running.contestantRequests(ctx)
	if err != nil {
		return err
	}
	if err := contestant.start(ctx, place, running); err != nil {
		return err
	}
	// Whoever starts looks at every job: that is not rest yet, also if it only reads. The
	// API server looks at its own endpoints all the time.
	after, err := running.untilNoMore(ctx, func(request request) bool { return isWork(request) && !isOfServices(request) })
	if err != nil {
		return err
	}
	atStart := after.minus(before)
	note("writes at the start", "", atStart.sum(isWrite))
	used, err := running.usage()
	if err != nil {
		return err
	}
	note("CPU of controllers at the start", "s", used.cpu)
	progress("at rest: %s: %d jobs: at the start: %s", contestant.name, jobs, atStart)
	for range settings.repetitions {
		if err := running.restWindow(ctx, note); err != nil {
			return err
		}
	}
	for repetition := range settings.repetitions {
		changes := min(restChanges, jobs/2/settings.repetitions)
		if err := running.changeJobs(ctx, contestant, repetition*changes, changes, note); err != nil {
			return err
		}
	}
	return nil
}

// restWindow looks what controllers do when there is nothing to do.
func (cluster *cluster) restWindow(ctx context.Context, note func(measure, unit string, value float64)) error {
	requestsBefore, err := cluster.contestantRequests(ctx)
	if err != nil {
		return err
	}
	usedBefore, err := cluster.usage()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(restSeconds * time.Second):
	}
	requestsAfter, err := cluster.contestantRequests(ctx)
	if err != nil {
		return err
	}
	used, err := cluster.usage()
	if err != nil {
		return err
	}
	const windows = 60.0 / restSeconds
	during := requestsAfter.minus(requestsBefore)
	progress("at rest: in %d seconds: %s", restSeconds, during)
	note(writesAtRest, "", windows*during.sum(isWrite))
	note("all requests a minute", "", windows*during.sum(isWork))
	note("CPU of controllers a minute", "s", windows*(used.cpu-usedBefore.cpu))
	note("memory of controllers", "MiB", used.memory)
	return nil
}

// changeJobs ends jobs, one after the other, and measures until their status says so.
func (cluster *cluster) changeJobs(ctx context.Context, contestant contestant, first, count int, note func(measure, unit string, value float64)) error {
	pods, err := cluster.clientset.CoreV1().Pods(seeded).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	launchers := map[string]*corev1.Pod{}
	for i := range pods.Items {
		if pod := &pods.Items[i]; isLauncher(pod) {
			launchers[pod.Name[:len(recordedName)]] = pod
		}
	}
	var took []float64
	for i := range count {
		name := seededName(runningLife, first+i)
		if launchers[name] == nil {
			return fmt.Errorf("job %s has no launcher", name)
		}
		elapsed, err := cluster.endJob(ctx, contestant, name, launchers[name])
		if err != nil {
			return err
		}
		took = append(took, elapsed.Seconds()*1000)
	}
	slices.Sort(took)
	note(changeP50, "ms", took[len(took)/2])
	note(changeP99, "ms", took[min(len(took)-1, len(took)*99/100)])
	return nil
}

// Lives are the states that jobs are at rest in.
const (
	endedLife   = "ended"
	runningLife = "running"
	seeded      = "seeded"
)

// seededName is as long as the name that recordings are made under.
func seededName(life string, index int) string { return fmt.Sprintf("%s-%06d", life[:5], index) }

// seed makes jobs as if their controllers had been at work already.
func (cluster *cluster) seed(ctx context.Context, jobs int, lives []life) error {
	if err := cluster.createNamespace(ctx, seeded); err != nil {
		return err
	}
	bare, err := cluster.bare()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	for i := range jobs {
		life := lives[i%len(lives)]
		group.Go(func() error { return life.create(ctx, bare, seededName(life.name, i/len(lives))) })
	}
	return group.Wait()
}
