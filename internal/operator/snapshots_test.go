// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// newTrainLab has a TrainJob and its runtime.
func newTrainLab(t *testing.T) (*lab, *v2alpha1.ClusterTrainingRuntime) {
	t.Helper()
	job, runtime := trainJob("uid")
	lab := newLab(t, job, runtime)
	if err := lab.api.Get(t.Context(), client.ObjectKey{Name: "mpi"}, runtime); err != nil {
		t.Fatal(err)
	}
	return lab, runtime
}

// takeOver is a new leader, which only knows what the API server stores.
func (l *lab) takeOver() {
	l.t.Helper()
	l.train.snapshots = newSnapshots(Parts{Client: l.api, Live: l.api, Clock: l.clock})
	kind := l.train.kind.(trainJobs)
	kind.snapshots = l.train.snapshots
	l.train.kind, l.train.memory = kind, memory{}
}

func (l *lab) changeRuntime(runtime *v2alpha1.ClusterTrainingRuntime) {
	l.t.Helper()
	runtime.Spec.Template.Spec.ReplicatedJobs[1].Template.Labels = map[string]string{"state": "new"}
	if err := l.api.Update(l.t.Context(), runtime); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) snapshots() (names []string) {
	l.t.Helper()
	var list appsv1.ControllerRevisionList
	if err := l.api.List(l.t.Context(), &list); err != nil {
		l.t.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// The JobSet stores the digest of the job's runtime.
func TestJobSetIsCreatedFirst(t *testing.T) {
	lab, _ := newTrainLab(t)
	var tried []string
	lab.refuses = func(object client.Object) error {
		tried = append(tried, fmt.Sprintf("%T", object))
		if _, is := object.(*jobset.JobSet); is {
			return apierrors.NewInternalError(fmt.Errorf("stopped"))
		}
		return nil
	}
	if _, err := lab.train.reconcileObject(t.Context(), lab.job()); err == nil {
		t.Fatal("nothing was refused")
	}
	if want := []string{"*v1.ControllerRevision", "*v1alpha2.JobSet"}; !slices.Equal(tried, want) {
		t.Errorf("it tried to create %v, want %v", tried, want)
	}
}

// The leader stops right after it created the JobSet, and the runtime changes. The next
// leader uses the old runtime.
func TestRuntimeOfStartedJob(t *testing.T) {
	lab, runtime := newTrainLab(t)
	lab.refuses = func(object client.Object) error {
		switch object.(type) {
		case *appsv1.ControllerRevision, *jobset.JobSet:
			return nil
		}
		return apierrors.NewInternalError(fmt.Errorf("stopped"))
	}
	if _, err := lab.train.reconcileObject(t.Context(), lab.job()); err == nil {
		t.Fatal("nothing was refused")
	}
	first := &jobset.JobSet{}
	lab.get(first, "train")
	digest := first.Annotations[training.AnnotationRuntimeDigest]
	// Its status was not written, either.
	job := lab.job()
	job.Status = v2alpha1.TrainJobStatus{}
	if err := lab.api.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	lab.refuses = nil
	lab.changeRuntime(runtime)
	lab.takeOver()
	lab.reconcile(lab.train, 0)
	lab.reconcile(lab.train, 2*cachePatience)
	if got := lab.job().Status.RuntimeDigest; got != digest || digest == "" {
		t.Errorf("the job's runtime is %q, and was %q", got, digest)
	}
	if got := lab.snapshots(); len(got) != 1 || got[0] != plan.SnapshotName(digest) {
		t.Errorf("there are the snapshots %q", got)
	}
	for name, pod := range lab.pods() {
		if pod.Labels["state"] == "new" {
			t.Errorf("pod %s is of the new runtime", name)
		}
	}
}

func (l *lab) job() *v2alpha1.TrainJob {
	l.t.Helper()
	job := &v2alpha1.TrainJob{}
	l.get(job, "train")
	return job
}

// This holds also if the cache does not show the JobSet yet: no other object and no status
// is written.
func TestRuntimeOfUncachedJobSet(t *testing.T) {
	lab, _ := newTrainLab(t)
	lab.reconcile(lab.train, 0)
	model, _, err := lab.train.kind.model(t.Context(), lab.job())
	if err != nil {
		t.Fatal(err)
	}
	set := &jobset.JobSet{}
	lab.get(set, "train")
	set.Annotations[training.AnnotationRuntimeDigest] = "sha256:another"
	if err := sameRuntime(model, set); !apierrors.IsConflict(err) {
		t.Errorf("a JobSet of another runtime: %v", err)
	}
	delete(set.Annotations, training.AnnotationRuntimeDigest)
	if err := sameRuntime(model, set); err != nil {
		t.Errorf("a JobSet of an operator that wrote no digest: %v", err)
	}
}

// Jobs that were seen before a read began share it; others cause another one.
func TestReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := newRuntimeReads()
		var number atomic.Int32
		proceed := make(chan struct{})
		read := func() (*sharedRuntime, *diagnosis.Condition, error) {
			count := number.Add(1)
			<-proceed
			return &sharedRuntime{digest: fmt.Sprint(count)}, nil, nil
		}
		got := map[string]string{}
		var mutex sync.Mutex
		var group sync.WaitGroup
		look := func(name string) {
			group.Go(func() {
				found, _, err := reads.newest(context.Background(), &v2alpha1.TrainJob{ObjectMeta: metaOf(types.UID(name))}, read)
				if err != nil {
					t.Error(err)
					return
				}
				mutex.Lock()
				defer mutex.Unlock()
				got[name] = found.digest
			})
			synctest.Wait()
		}
		reads.addJob("a")
		reads.addJob("b")
		look("a")
		look("b")
		reads.addJob("late")
		look("late")
		look("never seen")
		close(proceed)
		group.Wait()
		look("a")
		if got["a"] != "3" || got["b"] != "1" || got["late"] != "2" || got["never seen"] != "3" || number.Load() != 3 {
			t.Errorf("%d reads: %v", number.Load(), got)
		}
	})
}

func TestFailedReadsAreNotShared(t *testing.T) {
	reads := newRuntimeReads()
	reads.addJob("a")
	number := 0
	for range 2 {
		_, obstacle, _ := reads.newest(t.Context(), &v2alpha1.TrainJob{ObjectMeta: metaOf("a")}, func() (*sharedRuntime, *diagnosis.Condition, error) {
			number++
			return nil, &diagnosis.Condition{Reason: "RuntimeNotFound"}, nil
		})
		if obstacle == nil {
			t.Error("nothing is in the way")
		}
	}
	if number != 2 {
		t.Errorf("it was read %d times", number)
	}
}

func TestRuntimeCacheIsBounded(t *testing.T) {
	memory := newRuntimeCache(10)
	for _, digest := range []string{"a", "b"} {
		memory.put(&sharedRuntime{digest: digest}, 4)
	}
	if memory.get("a") == nil {
		t.Error("a is forgotten")
	}
	memory.put(&sharedRuntime{digest: "c"}, 4)
	if memory.get("a") == nil || memory.get("c") == nil || memory.get("b") != nil {
		t.Error("it is not the one that was used least that is forgotten")
	}
	memory.put(&sharedRuntime{digest: "large"}, 100)
	if memory.get("large") == nil || memory.size != 100 || len(memory.entries) != 1 || memory.order.Len() != 1 {
		t.Errorf("%d bytes in %d entries", memory.size, len(memory.entries))
	}
}

func TestSweep(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, tc := range map[string]struct {
		change  func(*v2alpha1.TrainJob)
		want    int
		isAgain bool
	}{
		"a job needs it":                  {change: func(job *v2alpha1.TrainJob) { job.Status.RuntimeDigest = digest }, want: 1},
		"a job needs another":             {change: func(job *v2alpha1.TrainJob) { job.Status.RuntimeDigest = "sha256:other" }},
		"a job may choose it":             {want: 1, isAgain: true},
		"the job is another operator's":   {change: func(job *v2alpha1.TrainJob) { job.Spec.ManagedBy = new("other.example/controller") }},
		"the job is of another namespace": {change: func(job *v2alpha1.TrainJob) { job.Namespace = "other"; job.Status.RuntimeDigest = digest }},
		"a job that needs it is being deleted": {change: func(job *v2alpha1.TrainJob) {
			job.Status.RuntimeDigest, job.Finalizers, job.DeletionTimestamp = digest, []string{"foregroundDeletion"}, now()
		}, want: 1},
		"a job is deleted before it has chosen": {change: func(job *v2alpha1.TrainJob) {
			job.Finalizers, job.DeletionTimestamp = []string{"foregroundDeletion"}, now()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			job, _ := trainJob("uid")
			if tc.change != nil {
				tc.change(job)
			}
			snapshot := plan.Snapshot("team", digest, []byte("{}"))
			snapshot.UID = "snapshot"
			lab := newLab(t, job, snapshot)
			wait, err := lab.train.snapshots.sweep(t.Context(), client.ObjectKeyFromObject(snapshot))
			if err != nil || (wait > 0) != tc.isAgain {
				t.Errorf("the next check is after %s (%v)", wait, err)
			}
			if got := lab.snapshots(); len(got) != tc.want {
				t.Errorf("there are %q", got)
			}
		})
	}
}

// A new job waits until the deletion of its snapshot has finished.
func TestChoiceDuringSweep(t *testing.T) {
	lab, _ := newTrainLab(t)
	lab.reconcile(lab.train, 0)
	snapshot := &appsv1.ControllerRevision{}
	lab.get(snapshot, lab.snapshots()[0])
	key := client.ObjectKeyFromObject(snapshot)
	lab.train.snapshots.setDeleting(key, true)
	if _, _, err := lab.train.kind.model(t.Context(), lab.job()); !apierrors.IsConflict(err) {
		t.Errorf("the error is %v", err)
	}
	if err := lab.train.snapshots.remove(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	lab.train.snapshots.setDeleting(key, false)
	if _, _, err := lab.train.kind.model(t.Context(), lab.job()); err != nil {
		t.Fatal(err)
	}
	if got := lab.snapshots(); len(got) != 1 {
		t.Errorf("there are %q", got)
	}
}

func TestSnapshotsForget(t *testing.T) {
	lab, _ := newTrainLab(t)
	snapshots := lab.train.snapshots
	snapshots.addJob(lab.job())
	if _, _, err := lab.train.kind.model(t.Context(), lab.job()); err != nil {
		t.Fatal(err)
	}
	snapshot := &appsv1.ControllerRevision{}
	lab.get(snapshot, lab.snapshots()[0])
	if len(snapshots.chosen)+len(snapshots.reads.firstSeen)+len(snapshots.verified) != 3 {
		t.Fatalf("%v %v %v", snapshots.chosen, snapshots.reads.firstSeen, snapshots.verified)
	}
	snapshots.forget(lab.job(), nil)
	if err := snapshots.remove(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	snapshots.forgetSnapshot(snapshot)
	if len(snapshots.chosen)+len(snapshots.reads.firstSeen)+len(snapshots.verified)+len(snapshots.removed)+len(snapshots.deleting) != 0 {
		t.Errorf("%v %v %v %v", snapshots.chosen, snapshots.reads.firstSeen, snapshots.verified, snapshots.removed)
	}
}

func TestCacheHasNoContent(t *testing.T) {
	kept, err := dropContent(plan.Snapshot("team", "sha256:0", []byte(`{"large":1}`)))
	if err != nil || kept.(*appsv1.ControllerRevision).Data.Raw != nil || kept.(*appsv1.ControllerRevision).Name == "" {
		t.Errorf("%v (%v)", kept, err)
	}
}

func metaOf(uid types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: string(uid), UID: uid}
}

func now() *metav1.Time { return new(metav1.Now()) }

// countingReader counts the requests to the API server.
type countingReader struct {
	client.Reader
	number int
}

func (cr *countingReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	cr.number++
	return cr.Reader.Get(ctx, key, object, options...)
}

// Jobs that wait in the queue share one read of the runtime and one snapshot. A later job
// causes another read.
func TestRequestsForRuntimes(t *testing.T) {
	lab, runtime := newTrainLab(t)
	live := &countingReader{Reader: lab.api}
	lab.train.snapshots.live = live
	model := func(job *v2alpha1.TrainJob) string {
		t.Helper()
		j, obstacle, err := lab.train.kind.model(t.Context(), job)
		if err != nil || obstacle != nil {
			t.Fatalf("%v %v", obstacle, err)
		}
		return j.RuntimeDigest
	}
	var jobs []*v2alpha1.TrainJob
	for i := range 10 {
		job, _ := trainJob(types.UID(fmt.Sprint(i)))
		job.Name = fmt.Sprint("train-", i)
		lab.train.snapshots.addJob(job)
		jobs = append(jobs, job)
	}
	first := model(jobs[0])
	for _, job := range jobs {
		if got := model(job); got != first {
			t.Errorf("%s has %s, and others %s", job.Name, got, first)
		}
	}
	if live.number != 1 || lab.created != 1 {
		t.Errorf("%d reads, %d objects were created", live.number, lab.created)
	}
	lab.changeRuntime(runtime)
	late, _ := trainJob("late")
	lab.train.snapshots.addJob(late)
	if got := model(late); got == first || live.number != 2 || lab.created != 2 {
		t.Errorf("a later job has %s after %d reads; %d objects were created", got, live.number, lab.created)
	}
}
