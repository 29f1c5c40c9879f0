package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// A job keeps the runtime that it was created with, even where its JobSet is
// made anew.
func TestARuntimeThatChanges(t *testing.T) {
	place := parallel(t)
	mode := func(value string) func(*v2alpha1.TrainingRuntimeSpec) {
		return func(spec *v2alpha1.TrainingRuntimeSpec) {
			spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "MODE", Value: value}}
		}
	}
	made := runtime("mpi", mode("old"))
	place.Create(made)
	job := trainJob("", "train")
	place.createEventually(job)
	place.untilObjects(trainJobObjects...)

	kept := &v2alpha1.TrainingRuntimeSpec{}
	revision := mustGet(place, &appsv1.ControllerRevision{}, "train-runtime")
	if err := json.Unmarshal(revision.Data.Raw, kept); err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(&made.Spec, kept); difference != "" {
		t.Errorf("the job has kept another runtime (-want +got):\n%s", difference)
	}

	place.Patch(job, `{"spec":{"suspend":true}}`)
	place.untilObjects("ConfigMap/train-hostfile", "ControllerRevision/train-runtime", "Secret/train-ssh", "Service/train-worker")
	mode("new")(&made.Spec)
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
	place.untilObjects("ConfigMap/train-hostfile", "ControllerRevision/train-runtime", "Secret/train-ssh", "Service/train-worker")
	place.Delete(made)
	wantOld("the runtime is gone")
}

// A runtime that went between admission and the operator's first look.
func TestARuntimeThatIsGone(t *testing.T) {
	t.Parallel()
	place := sharedCluster.For(t).newPlace(t, withoutAdmission)
	job := trainJob("", "train")
	place.Create(job)
	place.Until("the job says what it lacks", job, func() error {
		_, message := conditionOf(job, v2alpha1.ConditionTrainingComplete)
		if want := "The TrainingRuntime mpi is gone since the job was created. Create it again, or delete the job."; message != want {
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
