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

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

// The output of --follow on each kind of terminal, with escape sequences spelled out.
func TestLiveView(t *testing.T) {
	tests := map[string]terminal{
		"no-terminal": noTerminal,
		"narrow":      {width: 60, live: true},
		"wide":        {width: 140, live: true},
		"colour":      {width: 100, live: true, colour: true},
	}
	files := map[string]bool{}
	for name, terminal := range tests {
		file := filepath.Join("testdata", "live", name+".golden.txt")
		files[file] = true
		t.Run(name, func(t *testing.T) {
			var out, talk bytes.Buffer
			screen := &liveView{to: &output{to: &talk}, out: &talk, terminal: terminal, clock: clocktesting.NewFakePassiveClock(now)}
			show := func(change ...func(*v2alpha1.TrainJob)) { screen.show(jobview.Of(trainJobNamed("digits", change...))) }
			show()
			show(queued)
			show(waiting)
			show(waiting) // Nothing has changed, so nothing is printed again.
			show(waiting, func(trainJob *v2alpha1.TrainJob) {
				trainJob.Status.ReadyWorkers, trainJob.Status.ReadyWorkerCount, trainJob.Status.WorkerCount = "2/3", 2, 3
			})
			screen.note("The launcher's container is started anew")
			show(running)
			screen.printLine(joblog.Line{Text: "epoch 1: loss 0.3"})
			screen.printLine(joblog.Line{Text: "a line that ", Continues: true})
			screen.printLine(joblog.Line{Text: "goes on"})
			show(running)
			show(restarting)
			show(restarted)
			show(succeeded)
			screen.clear()
			screen.finish(jobview.Of(trainJobNamed("digits", succeeded)))
			seen := strings.NewReplacer("\r", "<CR>", "\x1b", "<ESC>").Replace(talk.String())
			goldenfile.Check(t, file, []byte(seen+out.String()))
		})
	}
	goldenfile.NoOthers(t, filepath.Join("testdata", "live", "*.golden.txt"), files)
}

func TestBar(t *testing.T) {
	for workers, want := range map[[2]int32]int{{0, 4}: 0, {1, 4}: 5, {4, 4}: 20, {9, 4}: 20, {-1, 4}: 0, {0, 0}: 0} {
		got := bar(workers[0], workers[1], 20)
		if full := strings.Count(got, "█"); full != want || len([]rune(got)) != 22 {
			t.Errorf("bar(%v) = %s", workers, got)
		}
	}
}

func TestWrap(t *testing.T) {
	tests := map[string]struct {
		width int
		text  string
		want  []string
	}{
		"no terminal":         {width: 0, text: "one two three", want: []string{"one two three"}},
		"it fits":             {width: 16, text: "one two three", want: []string{"one two three"}},
		"two lines":           {width: 11, text: "one two three", want: []string{"one two", "three"}},
		"a word that is long": {width: 6, text: "a extraordinary b", want: []string{"a", "extraordinary", "b"}},
		"lines of its own":    {width: 80, text: "one\ntwo\n", want: []string{"one", "two"}},
		"letters, not bytes":  {width: 9, text: "äöü äöü", want: []string{"äöü äöü"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (terminal{width: tc.width}).wrap(tc.text, 2); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// Steps may arrive out of order, and a resumed job reaches them again. Each is shown
// once.
func TestStepsOutOfOrder(t *testing.T) {
	var talk bytes.Buffer
	screen := &liveView{to: &talk, out: &talk, clock: clocktesting.NewFakePassiveClock(now)}
	for _, steps := range [][]any{
		{training.StepSubmitted, 600, training.StepWorkersReached, 590},
		{training.StepSubmitted, 600, training.StepPodsReady, 591, training.StepWorkersReached, 590},
		{training.StepSubmitted, 600},
		{training.StepSubmitted, 600, training.StepPodsReady, 500},
	} {
		screen.showSteps(jobview.Of(trainJobNamed("digits", func(trainJob *v2alpha1.TrainJob) { trainJob.Status.Timeline = timeline(steps...) })))
	}
	want := "   0 s  Submitted\n  10 s  WorkersReached\n   9 s  PodsReady\n 100 s  PodsReady\n"
	if talk.String() != want {
		t.Errorf("shown:\n%swant:\n%s", talk.String(), want)
	}
}

func TestOutputThatCannotBeRead(t *testing.T) {
	interrupted, stop := context.WithCancel(t.Context())
	stop()
	tests := map[string]struct {
		ctx  context.Context
		err  error
		want string
	}{
		"no rights":   {t.Context(), errors.New("pods is forbidden"), "a line\nCannot read the output of the job: pods is forbidden\n"},
		"no pods":     {t.Context(), &joblog.NoPodsError{}, "a line\n"},
		"interrupted": {interrupted, context.Canceled, "a line\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var talk bytes.Buffer
			(&liveView{to: &talk, out: &talk}).printLog(test.ctx, func(yield func(joblog.Line, error) bool) {
				_ = yield(joblog.Line{Text: "a line"}, nil) && yield(joblog.Line{}, test.err)
			})
			if talk.String() != test.want {
				t.Errorf("shown:\n%swant:\n%s", talk.String(), test.want)
			}
		})
	}
}
