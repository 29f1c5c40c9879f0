// SPDX-License-Identifier: Apache-2.0

// The benchmark on pods: how long jobs take to start and to end, beside mpi-operator
// and beside pods that nobody looks after; the targets of the requirements; and, if
// asked for, hours of jobs. It needs root, and a local cluster of its own.
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
	"strings"
	"syscall"
	"time"

	"github.com/trireme-mpi/trireme/bench/report"
)

// settings are what the flags say.
type settings struct {
	parts       []string
	repetitions int
	rounds      int
	soak        time.Duration
	output      string
}

// bench is what all parts share.
type bench struct {
	settings settings
	cluster  *cluster
	watcher  *watcher
	report   report.Report
}

// part is something that can be measured by itself.
type part struct {
	name string
	run  func(*bench, context.Context) error
}

// parts in the order in which they run.
var parts = []part{
	{"startup", (*bench).measureStartup},
	{"crowd", (*bench).measureCrowds},
	{"size", (*bench).measureSizes},
	{"digits", (*bench).measureDigits},
	{"horovod", (*bench).measureHorovod},
	{"soak", (*bench).soak},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	settings, err := parseFlags(os.Args[1:])
	if err != nil {
		return err
	}
	cluster, err := prepareCluster(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.leave()) }()
	bench := &bench{settings: settings, cluster: cluster, report: report.Report{Machine: describeMachine(ctx), Bases: map[string]string{}}}
	if bench.watcher, err = startWatcher(ctx, cluster); err != nil {
		return err
	}
	// What was measured before something went wrong is still worth reading.
	for _, part := range parts {
		if err == nil && slices.Contains(settings.parts, part.name) {
			err = part.run(bench, ctx)
		}
	}
	bench.report.Machine["load after"] = loadAverage()
	if err := os.MkdirAll(filepath.Dir(settings.output), 0o755); err != nil {
		return err
	}
	return errors.Join(err, bench.report.Print(os.Stdout), bench.report.Write(settings.output))
}

func parseFlags(arguments []string) (settings, error) {
	var settings settings
	flags := flag.NewFlagSet("pods", flag.ContinueOnError)
	chosen := flags.String("parts", "startup,crowd,size,digits", "what to measure; horovod and soak are the other parts")
	flags.IntVar(&settings.repetitions, "repetitions", 4, "how often each start is measured")
	flags.IntVar(&settings.rounds, "rounds", 3, "how often everything else is measured")
	flags.DurationVar(&settings.soak, "soak", 20*time.Minute, "how long the soak lasts")
	flags.StringVar(&settings.output, "output", repository+"/bin/bench/pods.json", "where the report goes, as JSON")
	if err := flags.Parse(arguments); err != nil {
		return settings, err
	}
	settings.parts = strings.Split(*chosen, ",")
	for _, name := range settings.parts {
		if !slices.ContainsFunc(parts, func(part part) bool { return part.name == name }) {
			return settings, fmt.Errorf("-parts: there is no part %q", name)
		}
	}
	if settings.repetitions < 1 || settings.rounds < 1 {
		return settings, errors.New("-repetitions and -rounds must be at least 1")
	}
	return settings, nil
}

func progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, arguments...))
}
