// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
)

// watchRun shows the progress of a job, then its output, and its result. The job's
// output goes to stdout, everything else to stderr.
func (e *environment) watchRun(ctx context.Context, kind *kind, namespace, name string) error {
	api, err := e.client()
	if err != nil {
		return err
	}
	pods, err := e.core()
	if err != nil {
		return err
	}
	screen := &liveView{to: e.ErrOut, out: e.logs(), terminal: e.terminal, clock: e.clock}
	defer screen.clear()
	var last *view
	ended := make(chan struct{})
	var logs sync.WaitGroup
	var once sync.Once
	readLog := func(j *view) {
		logs.Go(func() {
			screen.printLog(ctx, joblog.Stream(ctx, joblog.FromCluster(pods, j.Identity()), joblog.Selection{Roles: []string{training.RoleLauncher}},
				joblog.Options{Follow: true, Ended: ended, Notify: screen.note}))
		})
	}
	err = followJob(ctx, kind, api, namespace, name, func(j *view) (bool, error) {
		last = j
		screen.show(j)
		if launcher := j.LauncherPodStatus; launcher != nil && launcher.Phase != "" && launcher.Phase != "Pending" {
			once.Do(func() { readLog(j) })
		}
		return j.Finished(), nil
	})
	close(ended)
	logs.Wait()
	screen.clear()
	switch {
	case last != nil && errors.Is(err, context.DeadlineExceeded):
		return e.timedOut(last)
	case err != nil:
		return err
	}
	screen.finish(last)
	if last.Phase == training.PhaseFailed {
		return e.jobFailed(last)
	}
	return nil
}

// liveView shows a running job: the steps that it has reached, and below them one
// status line that is updated in place.
type liveView struct {
	to       io.Writer
	out      io.Writer
	terminal terminal
	clock    clock.PassiveClock

	mutex sync.Mutex
	// steps of the timeline that were shown.
	steps map[training.TimelineStep]bool
	// status is the line that is updated in place; printed is the last one printed where
	// that is not possible.
	status, printed string
	logging         bool
	// progress is the last progress that was shown.
	progress string
	// restarts is the number of restarts that were shown.
	restarts int32
}

// show updates the screen.
func (screen *liveView) show(j *view) {
	screen.mutex.Lock()
	defer screen.mutex.Unlock()
	screen.wipe()
	screen.showSteps(j)
	screen.showRestart(j)
	screen.showProgress(j)
	if j.Finished() {
		screen.status = ""
		return
	}
	screen.status = screen.statusLine(j)
	screen.draw()
}

// showSteps prints the new steps. They may arrive out of order. A step that is missing
// now, as after a suspension, is shown again when the job reaches it again.
func (screen *liveView) showSteps(j *view) {
	reached := map[training.TimelineStep]bool{}
	for _, entry := range j.Timeline {
		reached[entry.Step] = true
		if !screen.steps[entry.Step] && entry.Step != training.StepFinished {
			fmt.Fprintln(screen.to, screen.terminal.paint(dim, stepLine(j, entry)))
		}
	}
	screen.steps = reached
}

// showRestart prints a new restart if there is no status line any more.
func (screen *liveView) showRestart(j *view) {
	if j.Restart == nil || j.Restart.Count <= screen.restarts {
		return
	}
	screen.restarts = j.Restart.Count
	if screen.terminal.live && screen.logging {
		fmt.Fprintf(screen.to, "%s: %s\n", j.State(), strings.Join(strings.Fields(j.Explanation()), " "))
	}
}

// showProgress prints the progress that the training reports, when it changes.
func (screen *liveView) showProgress(j *view) {
	if j.TrainerStatus == nil || j.Phase != training.PhaseRunning {
		return
	}
	if text := progressText(j, j.TrainerStatus); text != "" && text != screen.progress {
		screen.progress = text
		fmt.Fprintln(screen.to, screen.terminal.paint(dim, "Progress: "+text))
	}
}

// stepLine returns a step with the time since the job was submitted.
func stepLine(j *view, entry training.TimelineEntry) string {
	return fmt.Sprintf("%6s  %s", seconds(entry.Time.Sub(j.Submitted.Time)), entry.Step)
}

func seconds(took time.Duration) string { return fmt.Sprintf("%d s", int(max(took, 0).Seconds())) }

// statusLine is how the job stands now, on one line.
func (screen *liveView) statusLine(seen *view) string {
	words := seen.State()
	if workers := seen.Workers(); workers != "-" {
		words += fmt.Sprintf(", %s workers ready", workers)
	}
	if seen.Phase != training.PhaseRunning {
		words += ": " + strings.Join(strings.Fields(seen.Explanation()), " ")
	}
	if !screen.terminal.live {
		return words
	}
	ready, total, _ := seen.WorkerCounts()
	return fitted(bar(ready, total, min(20, screen.terminal.width/8))+" "+words, screen.terminal.width)
}

// bar shows how many workers of all are ready; length is that of a full one.
func bar(ready, total int32, length int) string {
	full := 0
	if total > 0 {
		full = int(min(max(ready, 0), total)) * length / int(total)
	}
	return "[" + strings.Repeat("█", full) + strings.Repeat("·", length-full) + "]"
}

// fitted truncates a line to a width.
func fitted(line string, width int) string {
	if runes := []rune(line); width > 1 && len(runes) >= width {
		return string(runes[:width-2]) + "…"
	}
	return line
}

// draw shows the status: in place where that is possible, otherwise only if it has
// changed.
func (screen *liveView) draw() {
	switch {
	case screen.status == "":
	case screen.terminal.live:
		if !screen.logging {
			fmt.Fprint(screen.to, screen.status)
		}
	case screen.status != screen.printed:
		screen.printed = screen.status
		fmt.Fprintln(screen.to, screen.status)
	}
}

// wipe clears the status line.
func (screen *liveView) wipe() {
	if screen.terminal.live && screen.status != "" && !screen.logging {
		control(screen.to, "\r\x1b[K")
	}
}

func (screen *liveView) clear() {
	screen.mutex.Lock()
	defer screen.mutex.Unlock()
	screen.wipe()
	screen.status = ""
}

// printLog prints the job's output to its end. If it cannot be read, the reason is
// shown at once and not only when the job has finished.
func (screen *liveView) printLog(ctx context.Context, lines iter.Seq2[joblog.Line, error]) {
	for line, err := range lines {
		var noPods *joblog.NoPodsError
		switch {
		case err == nil:
			screen.printLine(line)
			continue
		case ctx.Err() == nil && !errors.As(err, &noPods):
			screen.note(fmt.Sprintf("Cannot read the output of the job: %v", err))
		}
		return
	}
}

// printLine prints a line of the job. After the first one there is no status line,
// which would break the lines of the job.
func (screen *liveView) printLine(line joblog.Line) {
	screen.mutex.Lock()
	defer screen.mutex.Unlock()
	screen.wipe()
	screen.logging = true
	end := "\n"
	if line.Continues {
		end = ""
	}
	fmt.Fprint(screen.out, line.Text+end)
}

// note prints a message between the lines of the job.
func (screen *liveView) note(text string) {
	screen.mutex.Lock()
	defer screen.mutex.Unlock()
	screen.wipe()
	fmt.Fprintln(screen.to, text)
	screen.draw()
}

// finish prints the result of the job and its timeline.
func (screen *liveView) finish(last *view) {
	state := screen.terminal.paint(stateColour(last.State()), last.State())
	fmt.Fprintf(screen.to, "\n%s %s", last.Named(), state)
	if ran, known := last.Ran(screen.clock.Now()); known {
		fmt.Fprintf(screen.to, " after %s", ran.Round(time.Second))
	}
	fmt.Fprintln(screen.to)
	printTimeline(screen.to, last, "  ")
}

// stepMeanings explain the steps whose names do not.
var stepMeanings = map[training.TimelineStep]string{
	training.StepWorkersReached: "the launcher has reached all workers",
	training.StepFirstRankUp:    "the first rank has started",
}

// printTimeline prints when a job reached each step, and how long each step took.
func printTimeline(to io.Writer, j *view, indent string) {
	before := j.Submitted.Time
	for _, entry := range j.Timeline {
		took := ""
		if entry.Step != training.StepSubmitted {
			took = "+" + seconds(entry.Time.Sub(before))
		}
		line := fmt.Sprintf("%s%-16s%8s  %7s  %s", indent, entry.Step, seconds(entry.Time.Sub(j.Submitted.Time)), took, stepMeanings[entry.Step])
		fmt.Fprintln(to, strings.TrimRight(line, " "))
		before = entry.Time.Time
	}
}
