// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

func TestLogsUsage(t *testing.T) {
	with := session{terminal: noTerminal, objects: someJobs()}
	checkGolden(t, "logs/usage", map[string]struct {
		session
		line string
	}{
		"unknown job":         {with, "trainjob logs nope"},
		"training spelling":   {with, "training logs mpijob nope"},
		"two choices":         {with, "trainjob logs digits --all --worker 1"},
		"worker is no number": {with, "trainjob logs digits --worker two"},
		"rank of a worker":    {with, "trainjob logs digits --worker 1 --rank 0"},
		"negative rank":       {with, "trainjob logs digits --rank -1"},
		"follow the past":     {with, "trainjob logs digits -f --previous"},
		"negative tail":       {with, "trainjob logs digits --tail -5"},
		"negative since":      {with, "trainjob logs digits --since -5m"},
		"no name":             {with, "trainjob logs"},
	})
}

func TestLogSelections(t *testing.T) {
	cases := map[string]string{
		"":                       "launcher",
		"--launcher":             "launcher",
		"--worker launcher":      "launcher",
		"--worker 3":             "worker 3",
		"--all":                  "launcher+worker",
		"--aggregate":            "launcher+worker",
		"--all-workers":          "launcher+worker",
		"--initializer":          "initializer",
		"--all --initializer":    "launcher+worker+initializer",
		"--rank 7":               "launcher rank 7",
		"--rank 0 --launcher":    "launcher rank 0",
		"--container agent":      "launcher in agent",
		"--worker 0 -c exporter": "worker 0 in exporter",
	}
	for line, want := range cases {
		t.Run(line, func(t *testing.T) {
			r := &logReader{environment: newEnvironment(genericiooptions.NewTestIOStreamsDiscard()), kind: mpiJobs}
			command := newLogsCommand(r.environment, mpiJobs)
			command.ResetFlags()
			r.addFlags(command)
			if err := command.ParseFlags(strings.Fields(line)); err != nil {
				t.Fatal(err)
			}
			selection, err := r.selection(command)
			got := strings.Join(selection.Roles, "+")
			if selection.Worker != nil {
				got += fmt.Sprint(" ", *selection.Worker)
			}
			if selection.Rank != nil {
				got += fmt.Sprint(" rank ", *selection.Rank)
			}
			if selection.Container != "" {
				got += " in " + selection.Container
			}
			if got != want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
}

// someLines are lines of every kind of pod.
func someLines() []joblog.Line {
	line := func(role string, worker int32, seconds int, text string) joblog.Line {
		return joblog.Line{Pod: fmt.Sprint(role, worker), Role: role, Worker: worker, Container: role, Rank: joblog.NoRank, Time: now.Add(time.Duration(seconds)*time.Second + 120*time.Millisecond), Text: text}
	}
	lines := []joblog.Line{
		line(training.RoleInitializer, -1, 0, "fetched 12 files"),
		line(training.RoleWorker, 1, 1, "trireme: worker waits for its launcher on port 2222"),
		line(training.RoleWorker, 10, 2, "trireme: worker waits for its launcher on port 2222"),
		line(training.RoleLauncher, -1, 3, "[0] épopée, 100% of "+strings.Repeat("a very long line ", 12)),
		line(training.RoleLauncher, -1, 3, ""),
		line(training.RoleLauncher, -1, 4, "a line that is too long "),
		line(training.RoleLauncher, -1, 4, "to come in one piece"),
		line(training.RoleLauncher, -1, 5, "one that is "),
		line(training.RoleWorker, 0, 5, "in between"),
		line(training.RoleLauncher, -1, 5, "cut by another"),
		line(training.RoleLauncher, -1, 6, "without an end"),
	}
	lines[0].Container = "dataset"
	for _, piece := range []int{5, 7, 10} {
		lines[piece].Continues = true
	}
	return lines
}

func TestLogLines(t *testing.T) {
	files := map[string]bool{}
	for name, show := range map[string]struct {
		terminal
		timestamps, prefix bool
	}{
		"plain": {}, "prefix": {prefix: true}, "timestamps": {timestamps: true}, "prefix-and-timestamps": {prefix: true, timestamps: true},
		"narrow": {terminal: narrow, prefix: true}, "wide": {terminal: wide, prefix: true}, "colour": {terminal: colourful, prefix: true},
	} {
		file := filepath.Join("testdata", "logs", name+".golden.txt")
		files[file] = true
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			printer := newLogPrinter(&output{to: &out}, show.terminal, show.timestamps, show.prefix)
			for i, line := range someLines() {
				if err := printer.print(line, i%2 == 0); err != nil {
					t.Fatal(err)
				}
			}
			printer.flush()
			goldenfile.Check(t, file, out.Bytes())
		})
	}
	goldenfile.NoOthers(t, filepath.Join("testdata", "logs", "*.golden.txt"), files)
}

// Each reason for missing logs has its own message and exit code.
func TestNoLogs(t *testing.T) {
	launcher := joblog.Selection{Roles: []string{training.RoleLauncher}}
	worker := joblog.Selection{Roles: []string{training.RoleWorker}, Worker: new(int32(7))}
	cleaned := func(policy training.CleanPodPolicy) *view {
		return jobview.Of(mpiJobNamed("solve", failed, func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.CleanPodPolicy = &policy }))
	}
	tagged := func(trainJob *v2alpha1.TrainJob) {
		trainJob.Annotations = map[string]string{training.AnnotationTagOutput: "true"}
	}
	noPods := &joblog.NoPodsError{}
	files := map[string]bool{}
	for name, test := range map[string]struct {
		seen      *view
		selection joblog.Selection
		err       error
	}{
		"all deleted":       {cleaned(training.CleanPodPolicyAll), launcher, noPods},
		"running deleted":   {cleaned(training.CleanPodPolicyRunning), launcher, noPods},
		"none deleted":      {cleaned(training.CleanPodPolicyNone), launcher, noPods},
		"queued":            {jobview.Of(trainJobNamed("later", queued)), launcher, noPods},
		"waiting":           {jobview.Of(trainJobNamed("bert", waiting)), launcher, noPods},
		"no such worker":    {jobview.Of(trainJobNamed("digits", running)), worker, &joblog.NoPodsError{Others: 4}},
		"no initializer":    {jobview.Of(trainJobNamed("digits", running)), joblog.Selection{Roles: []string{training.RoleInitializer}}, &joblog.NoPodsError{Others: 4}},
		"not started":       {jobview.Of(trainJobNamed("bert", waiting)), launcher, &joblog.NotStartedError{Reasons: []string{"the launcher (pod bert-launcher) has no log yet: ImagePullBackOff: no such image"}}},
		"unknown container": {jobview.Of(trainJobNamed("digits", running)), launcher, &joblog.UnknownContainerError{Name: "x", Known: []string{"agent", "launcher"}}},
		"nothing before":    {jobview.Of(trainJobNamed("digits", running)), launcher, &joblog.NoPreviousError{Pods: []string{"digits-launcher"}}},
		"not tagged":        {jobview.Of(trainJobNamed("digits", running)), launcher, &joblog.UntaggedError{Rank: 2}},
		"tags were asked":   {jobview.Of(trainJobNamed("digits", running, tagged)), launcher, &joblog.UntaggedError{Rank: 2}},
	} {
		file := filepath.Join("testdata", "logs", "none", strings.ReplaceAll(name, " ", "-")+".golden.txt")
		files[file] = true
		t.Run(name, func(t *testing.T) {
			r := &logReader{environment: newEnvironment(genericiooptions.NewTestIOStreamsDiscard()), kind: test.seen.Kind}
			api := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(test.seen.Object, runtimeNamed("mpi-openmpi-cpu")).Build()
			var f *failure
			if err := r.explainLogs(t.Context(), api, test.seen, test.selection, test.err); !errors.As(err, &f) {
				t.Fatalf("%v", err)
			}
			var words bytes.Buffer
			f.print(&words)
			fmt.Fprintf(&words, "--- exit code %d\n", f.code)
			goldenfile.Check(t, file, words.Bytes())
		})
	}
	goldenfile.NoOthers(t, filepath.Join("testdata", "logs", "none", "*.golden.txt"), files)
}

// Ctrl-C is the usual way to stop --follow, and not an error.
func TestInterruptedLogs(t *testing.T) {
	r := &logReader{environment: newEnvironment(genericiooptions.NewTestIOStreamsDiscard()), kind: trainJobs, follow: true}
	err := r.explainLogs(t.Context(), nil, jobview.Of(trainJobNamed("digits", running)), joblog.Selection{}, context.Canceled)
	if code := exit(0); !errors.As(err, &code) || code != exitInterrupted {
		t.Errorf("%v", err)
	}
}
