// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// A job keeps the runtime that it was created with, even where its JobSet is
// made anew.
func TestARuntimeThatChanges(t *testing.T) {
	place := parallel(t)
	made := runtime("mpi", withMode("old"))
	place.Create(made)
	job := trainJob("", "train")
	place.createEventually(job)
	place.untilObjects(trainJobObjects...)

	old := snapshotOf(t, made)
	kept := &v2alpha1.TrainingRuntimeSpec{}
	if err := json.Unmarshal(mustGet(place, &appsv1.ControllerRevision{}, old.Name).Data.Raw, kept); err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(&made.Spec, kept); difference != "" {
		t.Errorf("the snapshot is of another runtime (-want +got):\n%s", difference)
	}
	place.untilDigest(job, old)

	place.Patch(job, `{"spec":{"suspend":true}}`)
	place.untilObjects("ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "Secret/train-ssh", "Service/train-worker")
	withMode("new")(&made.Spec)
	if err := place.client.Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	wantOld := func(when string) {
		t.Helper()
		place.Patch(job, `{"spec":{"suspend":null}}`)
		place.untilObjects(trainJobObjects...)
		env := mustGet(place, &jobset.JobSet{}, "train").Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.Containers[0].Env
		if !strings.Contains(fmt.Sprint(env), "{MODE old") {
			t.Errorf("%s: the workers' environment is %v", when, env)
		}
	}
	wantOld("the runtime has changed")
	place.Patch(job, `{"spec":{"suspend":true}}`)
	place.untilObjects("ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "Secret/train-ssh", "Service/train-worker")
	later := trainJob("", "later", func(job *v2alpha1.TrainJob) { job.Spec.Suspend = new(true) })
	place.createEventually(later)
	place.untilDigest(later, snapshotOf(t, made))
	place.untilSnapshots(old, snapshotOf(t, made))
	place.Delete(made)
	wantOld("the runtime is gone")
	place.untilDigest(job, old)
	place.Delete(later)
	place.untilSnapshots(old)
}

// withMode sets a variable of the workers, so that runtimes differ.
func withMode(value string) func(*v2alpha1.TrainingRuntimeSpec) {
	return func(spec *v2alpha1.TrainingRuntimeSpec) {
		spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "MODE", Value: value}}
	}
}

// snapshotOf is the snapshot of a runtime as it is now.
func snapshotOf(t *testing.T, made *v2alpha1.TrainingRuntime) *appsv1.ControllerRevision {
	t.Helper()
	digest, content, err := job.RuntimeDigest(&made.Spec)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := plan.Snapshot("", digest, content)
	snapshot.Annotations = map[string]string{"digest": digest}
	return snapshot
}

// untilDigest waits until a job says which runtime it runs with.
func (place *place) untilDigest(job *v2alpha1.TrainJob, want *appsv1.ControllerRevision) {
	place.Helper()
	place.Until("the job says which runtime it runs with", job, func() error {
		if got := job.Status.RuntimeDigest; got != want.Annotations["digest"] {
			return fmt.Errorf("it says %q, want %q", got, want.Annotations["digest"])
		}
		return nil
	})
}

// untilSnapshots waits until there are these snapshots, and no others.
func (place *place) untilSnapshots(want ...*appsv1.ControllerRevision) {
	place.Helper()
	place.Eventually("there are the snapshots that jobs need", func() error {
		var list appsv1.ControllerRevisionList
		if err := place.client.List(context.Background(), &list, client.InNamespace(place.Namespace)); err != nil {
			return err
		}
		var got, names []string
		for _, one := range list.Items {
			got = append(got, one.Name)
		}
		for _, one := range want {
			names = append(names, one.Name)
		}
		slices.Sort(got)
		slices.Sort(names)
		if !slices.Equal(got, names) {
			return fmt.Errorf("there are %q, want %q", got, names)
		}
		return nil
	})
}

// Many jobs of a runtime share one snapshot, which is deleted with the last of them.
func TestJobsShareASnapshot(t *testing.T) {
	const number = 50
	place := parallel(t)
	made := runtime("mpi")
	place.Create(made)
	var jobs []*v2alpha1.TrainJob
	for i := range number {
		// Some run: those must not have another one.
		one := trainJob("", fmt.Sprintf("train-%d", i), func(job *v2alpha1.TrainJob) { job.Spec.Suspend = new(i%10 != 0) })
		place.createEventually(one)
		jobs = append(jobs, one)
	}
	for _, one := range jobs {
		place.untilDigest(one, snapshotOf(t, made))
	}
	place.untilSnapshots(snapshotOf(t, made))
	for _, one := range jobs[1:] {
		place.Delete(one)
	}
	place.stays("one job needs the snapshot", func() error {
		return place.Get(&appsv1.ControllerRevision{}, snapshotOf(t, made).Name)
	})
	place.Delete(jobs[0])
	place.untilSnapshots()
}

// A snapshot that somebody deletes is created again, as long as anybody knows what was
// in it.
func TestDeletedSnapshotIsRecreated(t *testing.T) {
	place := parallel(t)
	made := runtime("mpi")
	place.Create(made)
	one := trainJob("", "train", func(job *v2alpha1.TrainJob) { job.Spec.Suspend = new(true) })
	place.createEventually(one)
	place.untilDigest(one, snapshotOf(t, made))
	old := snapshotOf(t, made)
	made.Spec.MLPolicy.NumNodes = new(int32(7))
	if err := place.client.Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	place.Delete(mustGet(place, &appsv1.ControllerRevision{}, old.Name))
	place.untilSnapshots(old)
}

// Another operator that takes over knows only what is stored.
func TestLostSnapshots(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, withJobSet)
	change := func(place *place, made *v2alpha1.TrainingRuntime) {
		made.Spec.MLPolicy.NumNodes = new(int32(7))
		if err := place.client.Update(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	forge := func(place *place, snapshot *appsv1.ControllerRevision) {
		forged := snapshot.DeepCopy()
		forged.Data.Raw = []byte("{}")
		place.Create(forged)
	}
	cases := map[string]struct {
		changes, forged bool
		want            string
	}{
		"the runtime is the same":                   {},
		"the runtime has changed":                   {changes: true, want: "RuntimeSnapshotLost"},
		"it is forged":                              {forged: true},
		"it is forged, and the runtime has changed": {forged: true, changes: true, want: "RuntimeSnapshotLost"},
	}
	type scene struct {
		place *place
		job   *v2alpha1.TrainJob
		old   *appsv1.ControllerRevision
		made  *v2alpha1.TrainingRuntime
	}
	scenes := map[string]scene{}
	for name := range cases {
		place := cluster.newPlace(t, withoutAdmission)
		// The operator remembers a runtime by its content, whatever namespace it is in: one
		// that is still there would restore the others.
		made := runtime("mpi", withMode(name))
		place.Create(made)
		one := trainJob("", "train", func(job *v2alpha1.TrainJob) { job.Spec.Suspend = new(true) })
		place.Create(one)
		place.untilDigest(one, snapshotOf(t, made))
		scenes[name] = scene{place, one, snapshotOf(t, made), made}
	}
	cluster.operator.Stop(t)
	for name, tc := range cases {
		scene := scenes[name]
		scene.place.Delete(mustGet(scene.place, &appsv1.ControllerRevision{}, scene.old.Name))
		if tc.forged {
			forge(scene.place, scene.old)
		}
		if tc.changes {
			change(scene.place, scene.made)
		}
	}
	cluster.start(t)
	for name, tc := range cases {
		scene := scenes[name]
		if tc.want == "" {
			scene.place.Patch(scene.job, `{"spec":{"suspend":null}}`)
			scene.place.untilObjects(trainJobObjects...)
			continue
		}
		scene.place.Until(name, scene.job, func() error {
			_, message := conditionOf(scene.job, v2alpha1.ConditionTrainingComplete)
			if !strings.Contains(message, scene.old.Name) {
				return fmt.Errorf("it says %q", message)
			}
			return wantConditions(scene.job, "TrainingComplete", "False "+tc.want)
		})
	}
}

// A runtime that is being deleted is absent for new jobs. A job that has its snapshot
// runs on.
func TestRuntimeBeingDeleted(t *testing.T) {
	place := parallel(t)
	made := runtime("mpi")
	made.Finalizers = []string{"example.com/hold"}
	place.Create(made)
	t.Cleanup(func() { place.Patch(made, `{"metadata":{"finalizers":null}}`) })
	one := trainJob("", "train", func(job *v2alpha1.TrainJob) { job.Spec.Suspend = new(true) })
	place.createEventually(one)
	place.untilDigest(one, snapshotOf(t, made))
	place.Delete(made)
	place.Eventually("new jobs are refused", func() error {
		late := trainJob(place.Namespace, "late")
		err := place.client.Create(context.Background(), late, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "not found in namespace") {
			return fmt.Errorf("a job of a runtime that is being deleted: %v", err)
		}
		return nil
	})
	place.Patch(one, `{"spec":{"suspend":null}}`)
	place.untilObjects(trainJobObjects...)
}

// The operator treats it as absent, too, where admission was not asked.
func TestRuntimeBeingDeletedWithoutAdmission(t *testing.T) {
	t.Parallel()
	place := sharedCluster.For(t).newPlace(t, withoutAdmission)
	made := runtime("mpi")
	made.Finalizers = []string{"example.com/hold"}
	place.Create(made)
	t.Cleanup(func() { place.Patch(made, `{"metadata":{"finalizers":null}}`) })
	place.Delete(made)
	late := trainJob("", "train")
	place.Create(late)
	place.Until("the job says what it lacks", late, func() error { return wantConditions(late, "TrainingComplete", "False RuntimeNotFound") })
}

// A runtime that went between admission and the operator's first look.
func TestARuntimeThatIsGone(t *testing.T) {
	t.Parallel()
	place := sharedCluster.For(t).newPlace(t, withoutAdmission)
	job := trainJob("", "train")
	place.Create(job)
	place.Until("the job says what it lacks", job, func() error {
		_, message := conditionOf(job, v2alpha1.ConditionTrainingComplete)
		if want := "TrainingRuntime mpi was deleted after the job was created. Create it again, or delete the job."; message != want {
			return fmt.Errorf("it says %q, want %q", message, want)
		}
		return errors.Join(wantConditions(job, "TrainingComplete", "False RuntimeNotFound", "GangScheduling", "False RuntimeNotFound", "Failed", "False NotFailed"),
			wantSteps(progressOf(job), training.StepSubmitted))
	})
	if progressOf(job).Phase != training.PhasePending {
		t.Errorf("it is %s", progressOf(job).Phase)
	}
	if objects := place.objects(); len(objects) != 0 {
		t.Errorf("it has objects: %v", objects)
	}
	place.Create(runtime("mpi"))
	place.untilObjects(trainJobObjects...)
	place.Until("the job waits for its pods to be scheduled", job, func() error { return wantConditions(job, "GangScheduling", "False Waiting") })
}
