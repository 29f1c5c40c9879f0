// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
)

// What many jobs of both kinds do: 250, or a thousand in make test-all. Most have no
// pods, which on one machine cost far more than jobs do.
var suspendedJobs, runningJobs, finishedJobs = numbersAtRest()

func numbersAtRest() (suspended, running, finished int) {
	if isThorough() {
		return 800, 150, 50
	}
	return 200, 36, 14
}

// restTime is how long nothing may be written: REST_SECONDS, or a while.
func restTime() time.Duration {
	if seconds, err := strconv.Atoi(os.Getenv("REST_SECONDS")); err == nil {
		return time.Duration(seconds) * time.Second
	}
	return 20 * time.Second
}

// Many jobs at rest cause no write at all, by the operator or by anybody
// else: a status that is written again, an event that is told twice or a pod
// that is looked at too often would show.
func TestJobsAtRestAreNotWritten(t *testing.T) {
	simulateNodes(t, 10)
	crowd := newCrowd(t, forever, briefly)
	begin := time.Now()
	took := func() time.Duration { return time.Since(begin).Round(time.Millisecond) }
	crowd.submitAll(jobsAtRest())
	t.Logf("%d jobs were created after %s", suspendedJobs+runningJobs+finishedJobs, took())
	crowd.untilSettled()
	t.Logf("all of them were settled after %s", took())
	untilAtRest(t, jobWrites)
	t.Logf("nothing was written any more after %s", took())

	before, since := jobWrites(t), time.Now()
	time.Sleep(restTime())
	if more := jobWrites(t).since(before); more.total() > 0 {
		t.Errorf("%d writes in %s: %s\n%s", more.total(), time.Since(since).Round(time.Second), more, crowd.newEvents(since))
	}
	t.Logf("%s at rest", restTime())
}

// briefly is a launcher that ends well after a moment.
const briefly = time.Second

// jobsAtRest are of both kinds in turn, in an order in which those that need
// time come first.
func jobsAtRest() (jobs []client.Object) {
	add := func(name string, count int, run time.Duration, suspend bool) {
		for i := range count {
			var object client.Object = simulatedMPIJob(fmt.Sprintf("%s-%d", name, i), 2, run, small())
			if i%2 == 0 {
				object = simulatedTrainJob(fmt.Sprintf("%s-%d", name, i), 1, run, small())
			}
			setSuspend(suspend)(object)
			jobs = append(jobs, object)
		}
	}
	add("finished", finishedJobs, briefly, false)
	add("running", runningJobs, forever, false)
	add("suspended", suspendedJobs, forever, true)
	return jobs
}

// untilSettled waits until every job is what its name says.
func (crowd *crowd) untilSettled() {
	crowd.t.Helper()
	crowd.until("the jobs settle", 3*time.Minute, func() error {
		found := counts{}
		if err := crowd.each(func(job client.Object) { found[standing(job)]++ }); err != nil {
			return err
		}
		want := counts{"suspended": suspendedJobs, "running": runningJobs, "finished": finishedJobs}
		if len(found) != len(want) || len(found.since(want)) > 0 {
			return fmt.Errorf("there are %s", found)
		}
		return nil
	})
}

// standing is how a job of the thousand stands.
func standing(job client.Object) string {
	progress := progressOf(job)
	_, suspended := conditionsOf(job)["Suspended"]
	name, _, _ := strings.Cut(job.GetName(), "-")
	stands := map[string]bool{
		"suspended": suspended && progress.Phase == training.PhasePending,
		"running":   progress.Phase == training.PhaseRunning && (progress.ReadyWorkers == "1/1" || progress.ReadyWorkers == "2/2"),
		"finished":  progress.Phase == training.PhaseSucceeded,
	}
	if stands[name] {
		return name
	}
	return fmt.Sprintf("%s but %s with %q %s", name, progress.Phase, progress.FailureReason, progress.ReadyWorkers)
}

// newEvents are the events of the last while, to see what was written.
func (crowd *crowd) newEvents(since time.Time) string {
	var list corev1.EventList
	if err := crowd.client.List(context.Background(), &list); err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, event := range list.Items {
		if event.LastTimestamp.After(since) || event.EventTime.After(since) {
			fmt.Fprintf(&text, "%s %s/%s: %s %s\n", event.InvolvedObject.Kind, event.InvolvedObject.Namespace, event.InvolvedObject.Name, event.Reason, event.Message)
		}
	}
	return text.String()
}
