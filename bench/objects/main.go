// SPDX-License-Identifier: Apache-2.0

// The benchmark of controllers: how soon the objects of jobs are there, and at what
// cost, side by side with the peers and with a client that just creates them. There
// is a real API server, etcd and kube-controller-manager, and neither a scheduler nor
// a kubelet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trireme-mpi/trireme/bench/report"
)

// largest is the most workers that the operator is told to take.
const largest = 100_000

// settings are what the flags say.
type settings struct {
	groups, contestants []string
	repetitions         int
	burst               load
	sizes, rest         []int
	// slowUpTo is the most workers of one job for a contestant that is slow by its own
	// limits.
	slowUpTo, slowRepetitions int
	output                    string
}

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func parseFlags(arguments []string) (settings, error) {
	flags := flag.NewFlagSet("objects", flag.ContinueOnError)
	groups := flags.String("groups", "burst,life,large,rest", "what is measured")
	only := flags.String("contestants", "", "who is measured, by the beginning of names with commas between; all if empty")
	repetitions := flags.Int("repetitions", 3, "how often")
	jobs := flags.Int("jobs", 100, "jobs of a burst")
	workers := flags.Int("workers", 8, "workers of each of them")
	sizes := flags.String("sizes", "64,100,500,1000", "workers of the large jobs")
	rest := flags.String("rest", "1000,5000", "jobs at rest")
	slowRepetitions := flags.Int("slow-repetitions", 3, "how often for mpi-operator as it is shipped, which takes minutes each time")
	slowUpTo := flags.Int("slow-up-to", 64, "largest job for mpi-operator as it is shipped, which creates five objects a second")
	output := flags.String("output", "", "file for the results as JSON; bin/bench/objects.json if empty")
	if err := flags.Parse(arguments); err != nil {
		return settings{}, err
	}
	made := settings{groups: strings.Split(*groups, ","), repetitions: *repetitions, burst: load{jobs: *jobs, workers: *workers}, slowUpTo: *slowUpTo, slowRepetitions: *slowRepetitions, output: *output}
	if *only != "" {
		made.contestants = strings.Split(*only, ",")
	}
	var err error
	if made.sizes, err = numbers(*sizes); err != nil {
		return settings{}, fmt.Errorf("--sizes: %w", err)
	}
	if made.rest, err = numbers(*rest); err != nil {
		return settings{}, fmt.Errorf("--rest: %w", err)
	}
	return made, nil
}

// numbers are written with commas between.
func numbers(text string) (read []int, err error) {
	for _, word := range strings.Split(text, ",") {
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		read = append(read, number)
	}
	return read, nil
}

func (settings settings) has(group string) bool { return slices.Contains(settings.groups, group) }

// bursts are that of the comparison, and smaller ones.
func (settings settings) bursts() []load {
	return []load{{settings.burst.jobs, settings.burst.workers}, {settings.burst.jobs / 2, settings.burst.workers}, {settings.burst.jobs / 4, settings.burst.workers}}
}

// life is one job that is followed to its end.
func (settings settings) life() load { return load{jobs: 1, workers: settings.burst.workers} }

// takesPart tells whether a contestant was asked for.
func (settings settings) takesPart(contestant contestant) bool {
	return len(settings.contestants) == 0 || slices.ContainsFunc(settings.contestants, func(prefix string) bool {
		return strings.HasPrefix(contestant.name, prefix)
	})
}

func run(arguments []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// What the libraries say of their work is not for the table.
	ctrl.SetLogger(logr.Discard())
	settings, err := parseFlags(arguments)
	if err != nil {
		return err
	}
	place, err := findPlace()
	if err != nil {
		return err
	}
	results := &report.Report{Machine: machine(place), Bases: map[string]string{}}
	if settings.output == "" {
		settings.output = filepath.Join(place.repository, "bin/bench/objects.json")
	}
	err = measureAll(ctx, place, settings, results)
	results.Goals = goals(*results, settings)
	// What was measured before something went wrong is still worth reading.
	if printed := results.Print(os.Stdout); printed != nil {
		return printed
	}
	if written := results.Write(settings.output); written != nil {
		return written
	}
	return err
}

func measureAll(ctx context.Context, place place, settings settings, results *report.Report) error {
	var taking []contestant
	for _, contestant := range contestants() {
		if settings.takesPart(contestant) {
			taking = append(taking, contestant)
		}
	}
	var failures []error
	if settings.has(burstGroup) || settings.has(lifeGroup) || settings.has(largeGroup) {
		failures = append(failures, compare(ctx, place, settings, taking, results))
	}
	if settings.has("rest") && ctx.Err() == nil {
		failures = append(failures, measureRest(ctx, place, settings, taking, results))
	}
	return errors.Join(failures...)
}
