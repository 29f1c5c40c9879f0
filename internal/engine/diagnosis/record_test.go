// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

func recordedSet() *jobset.JobSet {
	return &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "bert", Generation: 3, CreationTimestamp: stamp(submitted)}}
}

// What is recorded is what the next diagnosis starts from. Statuses of workers without
// a problem are reduced to their name.
func TestRecordIsReadBack(t *testing.T) {
	set, j := recordedSet(), &job.Job{Kind: job.KindJobSet, Name: "bert", Slots: 4, LauncherRunsRanks: true}
	verdict := Verdict{StartTime: new(stamp(scheduled)), Progress: training.Progress{
		Phase: training.PhaseRunning, WorkerCount: 5, Restart: &training.Restart{Count: 2, Reason: training.FailureTraining, DueTime: stamp(ready)},
		Timeline: []training.TimelineEntry{{Step: training.StepSubmitted, Time: stamp(submitted)}},
		WorkerPodStatuses: []training.WorkerPodStatus{
			{Index: 0, PodStatus: training.PodStatus{Name: "bert-node-0-0-r2", Node: "a", Phase: "Running"}},
			{Index: 1, PodStatus: training.PodStatus{Name: "bert-node-0-1-r2", Reason: "OOMKilled"}},
			{Index: 4, PodStatus: training.PodStatus{Name: "bert-node-0-4-r2", Node: "b"}},
		},
	}}
	verdict.Suspension.Yes = true
	verdict.JobSetRecord(j, set)
	got := FromJobSet(set)
	want := Previous{Progress: *verdict.Progress.DeepCopy(), StartTime: new(stamp(scheduled)), Submitted: stamp(submitted), Suspended: true, Queued: true}
	want.ObservedGeneration = 3
	want.WorkerPodStatuses[0].Node, want.WorkerPodStatuses[0].Phase, want.WorkerPodStatuses[2].Node = "", "", ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if hosts := RecordedHosts(set); hosts == nil || *hosts != (job.TrainerHosts{Slots: 4, Launcher: true}) {
		t.Errorf("the hosts are %v", hosts)
	}
	before := set.Annotations[training.AnnotationRecord]
	verdict.JobSetRecord(j, set)
	if after := set.Annotations[training.AnnotationRecord]; after != before {
		t.Errorf("the same verdict is recorded as\n%s, before as\n%s", after, before)
	}
}

// A JobSet is not deleted before its status has the result, which Trainer copies.
func TestTTLNeedsStatusOfJobSet(t *testing.T) {
	set, j := recordedSet(), &job.Job{Kind: job.KindJobSet, Name: "bert", Slots: 1, Lifetime: job.Lifetime{TTLSecondsAfterFinished: new(int32(10))}}
	verdict := Verdict{Progress: training.Progress{Phase: training.PhaseSucceeded}}
	verdict.JobSetRecord(j, set)
	if Expired(j, FromJobSet(set), at(present+99)) {
		t.Error("the JobSet is deleted before its status has the result")
	}
	j.Set = &job.Set{Jobs: []job.ReplicatedJob{{Name: training.RoleLauncher, Role: training.RoleLauncher}}}
	verdict.JobSetStatus(j, set, stamp(present))
	for second, want := range map[float64]bool{present + 9: false, present + 10: true} {
		if got := Expired(j, FromJobSet(set), at(second)); got != want {
			t.Errorf("after %.0f seconds it is expired: %t, want %t", second-present, got, want)
		}
	}
}

// A thousand workers, all with a problem, fit into an annotation many times.
func TestRecordIsSmall(t *testing.T) {
	set, verdict := recordedSet(), Verdict{}
	for index := range int32(1000) {
		verdict.WorkerPodStatuses = append(verdict.WorkerPodStatuses, training.WorkerPodStatus{Index: index, PodStatus: training.PodStatus{
			Name: fmt.Sprintf("bert-node-0-%d-r0", index), Reason: "ImagePullBackOff", Message: string(make([]byte, 500)),
		}})
	}
	verdict.JobSetRecord(&job.Job{Kind: job.KindJobSet, Slots: 1}, set)
	if size, limit := len(set.Annotations[training.AnnotationRecord]), 64<<10; size > limit {
		t.Errorf("the record has %d bytes, want at most %d", size, limit)
	}
	if got := len(FromJobSet(set).WorkerPodStatuses); got != 1000 {
		t.Errorf("%d workers are read back, want all 1000", got)
	}
}

func TestForgedRecords(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":           "yes",
		"another type":      `{"workers": "all"}`,
		"negative indexes":  `{"workers": [[-5, -1]]}`,
		"too many workers":  `{"workerCount": 2147483647, "workers": [[0, 2147483647], [0, 2147483647]]}`,
		"the other way":     `{"workers": [[7, 3]]}`,
		"an unknown status": `{"workers": [[0, 0]], "workerPodStatuses": [{"index": 9}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			set := recordedSet()
			set.Annotations = map[string]string{training.AnnotationRecord: text}
			if got := len(FromJobSet(set).WorkerPodStatuses); got > maxRecorded+1 {
				t.Errorf("%d workers are read", got)
			}
		})
	}
}

// A job that Trireme cannot run fails before it has pods, and says all reasons.
func TestUnsupportedJobFails(t *testing.T) {
	j := &job.Job{Kind: job.KindJobSet, Name: "bert", Worker: job.Role{Replicas: 2}, Unsupported: []string{"spec.a: one", "spec.b: two"}}
	verdict := Of(j, Previous{Submitted: stamp(submitted)}, Observed{Now: at(present), Timeouts: timeouts})
	const want = "Trireme cannot run JobSet bert as its runtime describes it: spec.a: one; spec.b: two. Change the runtime, and create the job again."
	if verdict.Phase != training.PhaseFailed || verdict.FailureReason != reasonUnsupported || verdict.FailureMessage != want {
		t.Errorf("the verdict is %s %s: %s", verdict.Phase, verdict.FailureReason, verdict.FailureMessage)
	}
}
