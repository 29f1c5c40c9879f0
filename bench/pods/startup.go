// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/bench/report"
)

const (
	startGroup = "start-up on real pods"
	endGroup   = "end on real pods"
)

// Measures of a start; those of the split add up to the whole.
const (
	toBarrier    = "submit to all ranks past the first barrier"
	ofObjects    = "of it: until all pods are made"
	ofScheduling = "of it: until all have a node"
	ofPodStart   = "of it: until all containers run"
	ofConnect    = "of it: until all ranks are started"
	ofInit       = "of it: until MPI_Init is over"
	ofBarrier    = "of it: the barrier"
)

// Measures of an end.
const (
	toFinal   = "launcher's exit to final job status"
	ofKubelet = "of it: until the pod's status says so (kubelet)"
	ofStatus  = "of it: pod's status to final job status"
)

// numbersOfWorkers that a machine of two cores can start side by side.
var numbersOfWorkers = []int32{2, 4}

// measureStartup measures every contestant in each repetition. The operators take
// turns in the order ABBA; bare pods follow the second of them, and so run beside
// each of them as often. The first repetition fills caches, with the fewest workers, and
// does not count.
func (bench *bench) measureStartup(ctx context.Context) error {
	bench.report.Bases[startGroup], bench.report.Bases[endGroup] = asBare, asPeer
	turns := []installation{trireme, peer}
	for repetition := range bench.settings.repetitions + 1 {
		for i, operator := range turns {
			if err := bench.cluster.choose(ctx, operator); err != nil {
				return err
			}
			if operator == trireme { // Who judges runtimes.
				if err := bench.makeRuntime(ctx, openMPIRuntime()); err != nil {
					return err
				}
			}
			if err := bench.takeTurn(ctx, repetition, operator, i == 1); err != nil {
				return err
			}
		}
		slices.Reverse(turns)
	}
	bench.judgeStartup()
	return nil
}

// takeTurn measures the contestants of an operator in an order that is drawn.
func (bench *bench) takeTurn(ctx context.Context, repetition int, operator installation, withBare bool) error {
	var chosen []contestant
	for _, one := range contestants {
		if one.operator == nil && withBare || one.operator != nil && *one.operator == operator {
			chosen = append(chosen, one)
		}
	}
	sizes := numbersOfWorkers
	if repetition == 0 {
		sizes = sizes[:1]
	}
	for _, workers := range sizes {
		for _, i := range rand.Perm(len(chosen)) {
			name := fmt.Sprintf("%s-%d-%d", chosen[i].short, workers, repetition)
			times, err := bench.runOnce(ctx, chosen[i], name, workers)
			if err != nil {
				return fmt.Errorf("%s, %d workers: %w", chosen[i].name, workers, err)
			}
			progress("start  %-17s %d workers  %.3f s; end %.3f s, of it %.3f s by the operator; repetition %d of %d, load %s", chosen[i].name, workers,
				times[toBarrier], times[toFinal], times[ofStatus], repetition, bench.settings.repetitions, loadAverage())
			if repetition > 0 {
				bench.addStart(chosen[i], workers, times)
			}
		}
	}
	return nil
}

func (bench *bench) addStart(contestant contestant, workers int32, times map[string]float64) {
	example := fmt.Sprintf("%d workers", workers)
	for _, measure := range []string{toBarrier, ofObjects, ofScheduling, ofPodStart, ofConnect, ofInit, ofBarrier} {
		result := report.Result{Group: startGroup, Case: example, Contestant: contestant.name, Measure: measure, Unit: "s"}
		if measure == toBarrier && workers == numbersOfWorkers[0] {
			result.Note = contestant.how
		}
		bench.report.Add(result, times[measure])
	}
	measures := []string{toFinal, ofKubelet, ofStatus}
	if contestant.operator == nil {
		measures = []string{ofKubelet} // There is no job.
	}
	for _, measure := range measures {
		bench.report.Add(report.Result{Group: endGroup, Case: example, Contestant: contestant.name, Measure: measure, Unit: "s"}, times[measure])
	}
}

// runOnce runs a job from its submission to its removal, and tells how long what
// took, in seconds.
func (bench *bench) runOnce(ctx context.Context, contestant contestant, name string, workers int32) (map[string]float64, error) {
	var support []client.Object
	if contestant.prepare != nil {
		var err error
		if support, err = contestant.prepare(name, workers); err != nil {
			return nil, err
		}
		if err := bench.cluster.make(ctx, support...); err != nil {
			return nil, err
		}
	}
	objects := contestant.submit(name, workers)
	began := time.Now()
	for _, object := range objects {
		if err := bench.cluster.Create(ctx, object); err != nil {
			return nil, err
		}
	}
	if err := bench.untilOver(ctx, contestant, name); err != nil {
		return nil, errors.Join(err, errors.New(bench.launcherLog(ctx, contestant.namespace, name)))
	}
	times, err := bench.split(ctx, contestant, name, workers, began)
	return times, errors.Join(err, bench.remove(ctx, contestant.namespace, name, append(objects, support...)))
}

// untilOver waits for the last thing that is measured.
func (bench *bench) untilOver(ctx context.Context, contestant contestant, name string) error {
	return until(ctx, name+" ends", func() (bool, error) {
		if job := bench.watcher.job(name); !job.failed.IsZero() {
			return false, errors.New("it has failed")
		} else if contestant.operator != nil && job.succeeded.IsZero() {
			return false, nil
		}
		launcher, _ := bench.watcher.podsOf(name)
		return launcher != nil && !launcher.terminated.IsZero(), nil
	})
}

// split makes the moments that were seen, or that the ranks have printed, into spans.
func (bench *bench) split(ctx context.Context, contestant contestant, name string, workers int32, began time.Time) (map[string]float64, error) {
	launcher, seen := bench.watcher.podsOf(name)
	if len(seen) != int(workers) {
		return nil, fmt.Errorf("%s has %d workers", name, len(seen))
	}
	var created, placed, started time.Time
	for _, pod := range append(seen, *launcher) {
		began, _ := bench.watcher.containerTimes(pod.container)
		if began.IsZero() {
			return nil, fmt.Errorf("nobody has seen the container of %s start", pod.name)
		}
		created, placed, started = later(created, pod.created), later(placed, pod.placed), later(started, began)
	}
	stamps, err := readStamps(bench.launcherLog(ctx, contestant.namespace, name), workers)
	if err != nil {
		return nil, err
	}
	times := map[string]float64{toBarrier: stamps[2].Sub(began).Seconds()}
	before := began
	for i, measure := range []string{ofObjects, ofScheduling, ofPodStart, ofConnect, ofInit, ofBarrier} {
		moment := slices.Concat([]time.Time{created, placed, started}, stamps)[i]
		times[measure] = moment.Sub(before).Seconds()
		before = moment
	}
	_, exited := bench.watcher.containerTimes(launcher.container)
	times[ofKubelet] = launcher.terminated.Sub(exited).Seconds()
	if final := bench.watcher.job(name).succeeded; contestant.operator != nil {
		times[toFinal], times[ofStatus] = final.Sub(exited).Seconds(), math.Max(0, final.Sub(launcher.terminated).Seconds())
	}
	return times, nil
}

func later(one, other time.Time) time.Time {
	if one.After(other) {
		return one
	}
	return other
}

// readStamps are when the last rank was started, had MPI_Init behind it, and the
// first barrier.
func readStamps(log string, workers int32) ([]time.Time, error) {
	stamps, ranks := make([]time.Time, 3), 0
	for line := range strings.Lines(log) {
		words := strings.Fields(line)
		if len(words) != 5 || words[0] != "stamps" {
			continue
		}
		ranks++
		for i := range stamps {
			nanoseconds, err := strconv.ParseInt(words[i+2], 10, 64)
			if err != nil {
				return nil, err
			}
			stamps[i] = later(stamps[i], time.Unix(0, nanoseconds))
		}
	}
	if ranks != int(workers) {
		return nil, fmt.Errorf("%d of %d ranks have printed their stamps:\n%s", ranks, workers, log)
	}
	return stamps, nil
}

func (bench *bench) launcherLog(ctx context.Context, namespace, name string) string {
	launcher, _ := bench.watcher.podsOf(name)
	if launcher == nil {
		return "there is no launcher"
	}
	text, err := bench.cluster.core.CoreV1().Pods(namespace).GetLogs(launcher.name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// remove removes a run, and waits until its pods are gone: kubelet still cleans up
// after them when the next ones start, so there is a pause, too.
func (bench *bench) remove(ctx context.Context, namespace, name string, objects []client.Object) error {
	for _, object := range objects {
		if _, isService := object.(*corev1.Service); isService {
			continue // All runs share it.
		}
		if err := client.IgnoreNotFound(bench.cluster.Delete(ctx, object, client.PropagationPolicy("Background"), client.GracePeriodSeconds(1))); err != nil {
			return err
		}
	}
	if err := until(ctx, "the pods of "+name+" are gone", func() (bool, error) {
		var pods corev1.PodList
		err := bench.cluster.List(ctx, &pods, client.InNamespace(namespace))
		return !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return strings.HasPrefix(pod.Name, name+"-") }), err
	}); err != nil {
		return err
	}
	time.Sleep(time.Second)
	return nil
}

// judgeStartup compares what was measured with the goals.
func (bench *bench) judgeStartup() {
	found := func(group, contestant, measure string, workers int32) report.Result {
		result, _ := bench.report.Find(group, fmt.Sprintf("%d workers", workers), contestant, measure)
		return result
	}
	ours := []string{asMPIJob, asTrainJob}
	for _, contestant := range ours {
		for _, workers := range numbersOfWorkers {
			start := found(startGroup, contestant, toBarrier, workers).Median()
			for _, other := range []struct {
				name  string
				limit float64
			}{{asPeer, 1}, {asBare, 1.15}, {asBareAgent, 1.15}} {
				ratio := start / found(startGroup, other.name, toBarrier, workers).Median()
				bench.goal(report.AtMost(fmt.Sprintf("start-up, %s, %d workers, as a multiple of %s", contestant, workers, other.name), ratio, other.limit))
			}
		}
	}
	for _, contestant := range ours {
		var mine, theirs []float64
		for _, workers := range numbersOfWorkers {
			mine = append(mine, found(endGroup, contestant, ofStatus, workers).Samples...)
			theirs = append(theirs, found(endGroup, asPeer, ofStatus, workers).Samples...)
		}
		bench.goal(report.AtMost("pod's status to final job status, "+contestant+", p95, s", percentile(mine, 95), 0.3))
		bench.goal(report.AtMost("pod's status to final job status, "+contestant+", p95, as a share of mpi-operator's", percentile(mine, 95)/percentile(theirs, 95), 1.0/3))
	}
	for _, contestant := range ours {
		slowest := 0.0
		for _, measure := range []string{ofConnect, ofInit} {
			slowest += slices.Max(found(startGroup, contestant, measure, 4).Samples)
		}
		bench.goal(report.AtMost("MPI initialisation, "+contestant+", 4 workers, the slowest, s", slowest, 60))
	}
}

func (bench *bench) goal(goal report.Goal) { bench.report.Goals = append(bench.report.Goals, goal) }

// percentile is the value that so many percent of the samples do not exceed.
func percentile(samples []float64, percent float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[int(math.Ceil(percent/100*float64(len(sorted))))-1]
}
