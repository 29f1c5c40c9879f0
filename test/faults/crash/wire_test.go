// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	batchv1 "k8s.io/api/batch/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

// moment is when an operator is stopped: before a write reaches the API server, or
// after it has, with the answer lost.
type moment struct {
	write string
	after bool
}

func (moment moment) String() string {
	if moment.after {
		return "after " + moment.write
	}
	return "before " + moment.write
}

// journal is what the operators of one life have written, one after the other.
type journal struct {
	mutex sync.Mutex
	// crashes are still to come: each of them stops one operator.
	crashes []moment
	// writes are all that were tried, each once, in their order.
	writes []string
	// done counts those that the API server took.
	done map[string]int
	// told are the statuses that were stored.
	told []told
}

// told is what a status says that must never be wrong.
type told struct {
	phase  training.Phase
	reason training.FailureReason
}

// begin notes a write, and tells whether the operator is stopped at it.
func (journal *journal) begin(write *write) *moment {
	journal.mutex.Lock()
	defer journal.mutex.Unlock()
	name := write.what
	if isReminder(name) {
		return nil
	}
	// What is made or deleted a second time is another write.
	if nth := journal.done[name] + 1; nth > 1 && !write.again {
		name = fmt.Sprintf("%s, time %d", name, nth)
	}
	if !slices.Contains(journal.writes, name) {
		journal.writes = append(journal.writes, name)
	}
	for i, crash := range journal.crashes {
		if crash.write == name {
			journal.crashes = slices.Delete(journal.crashes, i, i+1)
			return &crash
		}
	}
	return nil
}

// isStoppedAt tells whether an operator is still to be stopped at a write.
func (journal *journal) isStoppedAt(write string) bool {
	journal.mutex.Lock()
	defer journal.mutex.Unlock()
	return slices.ContainsFunc(journal.crashes, func(crash moment) bool { return crash.write == write })
}

// has tells whether a write was tried.
func (journal *journal) has(write string) bool {
	journal.mutex.Lock()
	defer journal.mutex.Unlock()
	return slices.Contains(journal.writes, write)
}

// isReminder tells whether a scheduler is reminded of a gang that has waited for 15
// seconds: on a machine that is busy, that happens here and there.
func isReminder(what string) bool { return strings.HasPrefix(what, "patch podgroups/") }

// end notes what the API server took.
func (journal *journal) end(write *write, response *http.Response) {
	if response.StatusCode >= http.StatusMultipleChoices {
		return
	}
	journal.mutex.Lock()
	defer journal.mutex.Unlock()
	if journal.done == nil {
		journal.done = map[string]int{}
	}
	journal.done[write.what]++
	if write.status != nil {
		journal.told = append(journal.told, *write.status)
	}
}

// created counts what was created, by kind and name.
func (journal *journal) created() map[string]int {
	journal.mutex.Lock()
	defer journal.mutex.Unlock()
	created := map[string]int{}
	for what, number := range journal.done {
		if strings.HasPrefix(what, "create ") && !strings.HasPrefix(what, "create events/") {
			created[what] = number
		}
	}
	return created
}

// history is what the statuses said, one after the other.
func (journal *journal) history() []told {
	journal.mutex.Lock()
	defer journal.mutex.Unlock()
	return slices.Compact(slices.Clone(journal.told))
}

// wire is the one way that an operator has to the API server.
type wire struct {
	journal *journal
	server  http.RoundTripper
	// stop ends the operator. begun is closed when it works, ended when nothing of it
	// is on its way.
	stop         func()
	begun, ended chan struct{}

	dead     atomic.Bool
	underway sync.WaitGroup
}

var errStopped = errors.New("the operator is no more")

// RoundTrip passes requests on until the operator is stopped, and none after that.
func (wire *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	if wire.dead.Load() {
		return nil, errStopped
	}
	if request.Method == http.MethodGet {
		return wire.server.RoundTrip(request)
	}
	wire.underway.Add(1)
	defer wire.underway.Done()
	write, err := writeOf(request)
	if err != nil {
		return nil, err
	}
	crash := wire.journal.begin(write)
	if crash != nil && !crash.after {
		return nil, wire.die()
	}
	// What is on its way arrives, whatever becomes of who has sent it.
	response, err := wire.server.RoundTrip(request.Clone(context.WithoutCancel(request.Context())))
	if err != nil {
		return nil, err
	}
	wire.journal.end(write, response)
	if crash != nil {
		_ = response.Body.Close()
		return nil, wire.die()
	}
	return response, nil
}

func (wire *wire) die() error {
	wire.dead.Store(true)
	wire.stop()
	return errStopped
}

// write is one request that changes something.
type write struct {
	// what is the same in each life: a verb, a kind and a name, or what is told.
	what string
	// again: it may be written several times in a row, depending on what is seen when.
	again bool
	// status is nil unless a job's is written.
	status *told
}

var (
	paths   = regexp.MustCompile(`^/apis?/(?:[^/]+/)?v[^/]+/namespaces/[^/]+/([^/]+)(?:/([^/]+))?(?:/(.+))?$`)
	decoder = serializer.NewCodecFactory(operator.Scheme()).UniversalDeserializer()
	verbs   = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}
)

func writeOf(request *http.Request) (*write, error) {
	parts := paths.FindStringSubmatch(request.URL.Path)
	if parts == nil {
		return nil, fmt.Errorf("the operator writes %s %s, which is not in the job's namespace", request.Method, request.URL.Path)
	}
	resource, name := parts[1], parts[2]
	made := &write{again: request.Method == http.MethodPut || request.Method == http.MethodPatch}
	if parts[3] == "status" {
		object, err := bodyOf(request)
		if err != nil {
			return nil, err
		}
		made.what, made.status = statusOf(object)
		return made, nil
	}
	if request.Method == http.MethodPost {
		object, err := bodyOf(request)
		if err != nil {
			return nil, err
		}
		name = object.GetName()
		if event, is := object.(*eventsv1.Event); is {
			name = event.Reason
		}
	}
	verb := verbs[request.Method]
	// The one such patch is the removal of a launcher's finalizer.
	if request.Header.Get("Content-Type") == string(types.StrategicMergePatchType) {
		verb = "release"
	}
	made.what = fmt.Sprintf("%s %s/%s", verb, resource, name)
	return made, nil
}

// bodyOf is the object that a request brings.
func bodyOf(request *http.Request) (client.Object, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	if object, _, err := decoder.Decode(body, nil, nil); err == nil {
		return object.(client.Object), nil
	}
	// Groups are of kinds that nobody has types for.
	object := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(body, object); err != nil || object.Name == "" {
		return nil, fmt.Errorf("%s %s: its body is not understood: %v", request.Method, request.URL.Path, err)
	}
	return object, nil
}

// statusOf names a status by what is the same in each life: how many pods of
// several are seen at a moment is not.
func statusOf(object client.Object) (string, *told) {
	switch workload := object.(type) {
	case *jobset.JobSet:
		return jobSetStatusOf(workload), nil
	case *batchv1.Job:
		return batchJobStatusOf(workload), nil
	}
	progress := player.ProgressOf(object)
	last := "nothing"
	if steps := progress.Timeline; len(steps) > 0 {
		last = string(steps[len(steps)-1].Step)
	}
	text := fmt.Sprintf("tell generation %d: ", progress.ObservedGeneration)
	if progress.Restart != nil {
		text += fmt.Sprintf("restart %d, ", progress.Restart.Count)
	}
	text += fmt.Sprintf("%s, %s", progress.Phase, last)
	if job, is := object.(*v2beta1.MPIJob); is && shallHaveNoPods(job) && !hasPods(job) {
		text += ", no pods"
	}
	return text, &told{phase: progress.Phase, reason: progress.FailureReason}
}

func jobSetStatusOf(set *jobset.JobSet) string {
	ready := int32(0)
	for _, child := range set.Status.ReplicatedJobsStatus {
		ready += child.Ready
	}
	return fmt.Sprintf("tell jobsets/%s: restarts %d, %d ready, end %q", set.Name, set.Status.Restarts, ready, set.Status.TerminalState)
}

func batchJobStatusOf(batch *batchv1.Job) string {
	ready, end := int32(0), batchv1.JobConditionType("")
	if batch.Status.Ready != nil {
		ready = *batch.Status.Ready
	}
	for _, condition := range batch.Status.Conditions {
		end = condition.Type
	}
	return fmt.Sprintf("tell jobs/%s: %d failed, %d ready, end %q", batch.Name, batch.Status.Failed, ready, end)
}

func shallHaveNoPods(job *v2beta1.MPIJob) bool {
	suspend := job.Spec.RunPolicy.Suspend
	return job.Status.CompletionTime != nil || suspend != nil && *suspend
}

// hasPods tells whether pods of a job are counted that have not ended.
func hasPods(job *v2beta1.MPIJob) bool {
	for _, role := range job.Status.ReplicaStatuses {
		if role.Active > 0 {
			return true
		}
	}
	return false
}
