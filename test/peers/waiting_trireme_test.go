// SPDX-License-Identifier: Apache-2.0

//go:build operator

package peers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/kube/preflight"
)

// saysWhyItWaits has odh explain each wait, and compares the answer with what was done to
// the queue.
func (kind jobKind) saysWhyItWaits(t *testing.T) {
	if _, err := shell("make bin/odh"); err != nil {
		t.Fatal(err)
	}
	place := newPlace(t)
	kind.submit(place, jobShape{name: "first"})
	place.eventually("its queue is missing", kind.answers(place, "first", preflight.WaitQueueMissing, nil))
	place.createQueue(jobPods + 1)
	place.eventually("the first job runs", kind.runs(place, "first"))

	kind.submit(place, jobShape{name: "second"})
	state := &preflight.QueueState{Name: queueOf, ClusterQueue: place.namespace, Position: 1, Length: 1, Admitted: []string{"first"}}
	place.eventually("the second job is the next", kind.answers(place, "second", preflight.WaitQueue, state))
	kind.submit(place, jobShape{name: "third"})
	behind := *state
	state.Length, behind.Length, behind.Position, behind.Ahead = 2, 2, 2, []string{"second"}
	place.eventually("the third job is behind it", kind.answers(place, "third", preflight.WaitQueue, &behind))
	place.eventually("the second job is still the next", kind.answers(place, "second", preflight.WaitQueue, state))

	place.patch(clusterQueueKind, place.namespace, `{"spec":{"stopPolicy":"Hold"}}`)
	place.eventually("the queue is stopped", kind.answers(place, "second", preflight.WaitQueueInactive, nil))
	place.patch(clusterQueueKind, place.namespace, `{"spec":{"stopPolicy":"None"}}`)
	kind.patchWorkload(place, "second", `{"spec":{"active":false}}`)
	place.eventually("the second job is deactivated", kind.answers(place, "second", preflight.WaitDeactivated, nil))
	place.delete(kind.kind, "first")
	place.eventually("the third job runs", kind.runs(place, "third"))
	place.eventually("the third job waits for nothing", kind.answers(place, "third", "", nil))
}

// answers asks that odh names a cause for the job, and its place in the queue.
func (kind jobKind) answers(place *place, name string, want preflight.WaitCause, queue *preflight.QueueState) func() error {
	return func() error {
		// It exits with 1 if something hinders the job.
		output, err := shell(fmt.Sprintf(`eval "$(bin/cluster env)"; bin/odh -n %s %s diagnose %s -o json || [ $? = 1 ]`, place.namespace, strings.ToLower(kind.kind.Kind), name))
		if err != nil {
			return err
		}
		var told struct{ Waiting *preflight.Waiting }
		if err := json.Unmarshal([]byte(output), &told); err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		answer := told.Waiting
		if want == "" && answer == nil {
			return nil
		}
		if answer == nil || answer.Cause != want {
			return fmt.Errorf("the answer is %+v, want %s", answer, want)
		}
		if queue == nil {
			return nil
		}
		// Kueue has not tried to admit a job that is behind another one.
		if lacks := answer.Queue.Lacks; !strings.Contains(lacks, "insufficient unused quota") && (queue.Position == 1 || lacks != "") {
			return fmt.Errorf("the queue lacks %q", lacks)
		}
		answer.Queue.Lacks = ""
		if diff := cmp.Diff(queue, answer.Queue); diff != "" {
			return fmt.Errorf("the queue (-want +got):\n%s", diff)
		}
		return nil
	}
}
