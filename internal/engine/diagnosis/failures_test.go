// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// failureRow is one way in which a job fails. Its message must name the failed object,
// the cause and what to do.
type failureRow struct {
	name string
	// kinds that can fail like this; empty is both.
	kinds   []job.Kind
	options []option
	// start is the state of all pods before the failure; default: runs.
	start  podOption
	happen func(*scene)

	reason training.FailureReason
	// subject, cause and advice are in the message, with the names of pods expanded.
	subject, cause, advice string
}

// failureTables are all rows, grouped by what fails.
var failureTables = map[string][]failureRow{
	"worker":      workerFailures,
	"waiting":     waitingFailures,
	"report":      reportedFailures,
	"launcher":    launcherFailures,
	"refused":     refusedFailures,
	"deletion":    deletionFailures,
	"time":        timeoutFailures,
	"initializer": initializerFailures,
}

// eachFailure runs every row for every kind that it is meant for.
func eachFailure(t *testing.T, check func(t *testing.T, row failureRow, scene *scene)) {
	for table, rows := range failureTables {
		for _, row := range rows {
			for _, kind := range kinds {
				if len(row.kinds) > 0 && !slices.Contains(row.kinds, kind) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", table, row.name, kind), func(t *testing.T) {
					start := row.start
					if start == nil {
						start = runs
					}
					scene := startedScene(t, kind, start, row.options...)
					row.happen(scene)
					check(t, row, scene)
				})
			}
		}
	}
}

func TestFailures(t *testing.T) {
	eachFailure(t, func(t *testing.T, row failureRow, scene *scene) {
		verdict := scene.storeVerdict()
		if verdict.Phase != training.PhaseFailed || verdict.FailureReason != row.reason || verdict.Stage != plan.Finished {
			t.Fatalf("the job is %s with %q, stage %s: %s\nwant %s", verdict.Phase, verdict.FailureReason, verdict.Stage, verdict.FailureMessage, row.reason)
		}
		for what, words := range map[string]string{"who": row.subject, "cause": row.cause, "advice": row.advice} {
			if words == "" {
				t.Errorf("the row has no %s to look for", what)
			}
			if words = scene.expand(words); !strings.Contains(verdict.FailureMessage, words) {
				t.Errorf("%s, %q, is not in the message: %s", what, words, verdict.FailureMessage)
			}
		}
		checkSentences(t, verdict.FailureMessage)
		if verdict.CompletionTime == nil || verdict.CompletionTime.After(scene.observed.Now) || verdict.CompletionTime.Before(new(stamp(created))) {
			t.Errorf("completed at %v, observed at %v", verdict.CompletionTime, scene.observed.Now)
		}
		want := fmt.Sprintf("True %s: %s", row.reason, verdict.FailureMessage)
		if said := scene.condition("Failed"); said != want {
			t.Errorf("the condition Failed is %q\nwant %q", said, want)
		}
	})
}

// misprints match errors in composed sentences.
var misprints = regexp.MustCompile(`\.\.|%!|  | \.|: \.|::|<nil>|\(pod \)|-n \.|-c  |describe node \.`)

// checkSentences checks that a message consists of whole sentences.
func checkSentences(t *testing.T, message string) {
	t.Helper()
	if found := misprints.FindString(message); found != "" {
		t.Errorf("%q in %s", found, message)
	}
	if message == "" || !strings.HasSuffix(message, ".") || message[0] < 'A' || message[0] > 'Z' {
		t.Errorf("not whole sentences: %s", message)
	}
}

func TestEveryReasonHasRow(t *testing.T) {
	provoked := map[training.FailureReason]bool{}
	for _, rows := range failureTables {
		for _, row := range rows {
			provoked[row.reason] = true
		}
	}
	for _, reason := range []training.FailureReason{
		training.FailureGangSchedulingTimeout, training.FailureLauncher, training.FailureWorker, training.FailureSSHConnection,
		training.FailureMPIInitialization, training.FailureTraining, training.FailureResourceQuota,
	} {
		if !provoked[reason] {
			t.Errorf("no row fails with %s", reason)
		}
		if !isFailureReason(string(reason)) {
			t.Errorf("%s is not known as one of the reasons", reason)
		}
	}
	if isFailureReason("") || isFailureReason("OOMKilled") {
		t.Error("what is no reason of a failure is known as one")
	}
}

// A failure stays the same, whatever is observed later.
func TestFailuresAreFinal(t *testing.T) {
	eachFailure(t, func(t *testing.T, _ failureRow, scene *scene) {
		first := scene.storeVerdict()
		for name, later := range map[string]func(){
			"nothing has changed": func() {},
			"all pods are deleted": func() {
				scene.observed.Launchers, scene.observed.Workers, scene.observed.Workload = nil, nil, Workload{}
			},
			"all pods run as if new":     func() { scene.addPods(runs) },
			"the launcher has succeeded": func() { scene.addPods(runs); scene.launcher(exits(0, "Completed", "", present)) },
			"the user suspends it":       func() { scene.job.Suspended = true },
		} {
			later()
			scene.setTime(present + 4000)
			again := scene.storeVerdict()
			if again.Phase != first.Phase || again.FailureReason != first.FailureReason || again.FailureMessage != first.FailureMessage ||
				again.CompletionTime.Unix() != first.CompletionTime.Unix() || again.Duration != first.Duration {
				t.Errorf("%s: it became %s, %s %s: %s", name, again.CompletionTime, again.Phase, again.FailureReason, again.FailureMessage)
			}
		}
	})
}

// The cause is Kubernetes' own reason, for programs that must not parse the message.
func TestFailureCause(t *testing.T) {
	tests := map[string]struct {
		start   podOption
		happen  func(*scene)
		want    string
		isImage bool
	}{
		"an image that cannot be pulled": {start: pullsImage, happen: later(impatient, onWorker(waits("ImagePullBackOff", pullFailure))), want: "ImagePullBackOff", isImage: true},
		"the name of an image":           {start: pullsImage, happen: onWorker(waits("InvalidImageName", "no name")), want: "InvalidImageName", isImage: true},
		"out of memory":                  {start: runs, happen: onWorker(exits(137, "OOMKilled", "", present)), want: "OOMKilled"},
		"the launcher's command":         {start: runs, happen: func(scene *scene) { scene.launcher(exits(3, "Error", "", present)) }, want: "Error"},
	}
	for name, tc := range tests {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%s/%s", name, kind), func(t *testing.T) {
				scene := startedScene(t, kind, tc.start)
				tc.happen(scene)
				verdict := scene.storeVerdict()
				if verdict.Phase != training.PhaseFailed || verdict.FailureCause != tc.want || IsImageCause(verdict.FailureCause) != tc.isImage {
					t.Errorf("%s by %q (an image: %t), want %q: %s", verdict.Phase, verdict.FailureCause, IsImageCause(verdict.FailureCause), tc.want, verdict.FailureMessage)
				}
			})
		}
	}
}
