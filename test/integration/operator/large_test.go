// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// muchEnvironment is more than the operator keeps of a job in memory.
func muchEnvironment() (variables []corev1.EnvVar) {
	for i := range 100 {
		variables = append(variables, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: strings.Repeat("x", partial.Threshold/50)})
	}
	return variables
}

// written is what a user has written of a job, and must stay as it is.
func written(object client.Object) any {
	if job, is := object.(*v2beta1.MPIJob); is {
		spec := job.Spec.DeepCopy()
		spec.RunPolicy.Suspend = nil
		return []any{spec, job.Annotations, job.Labels}
	}
	job := object.(*v2alpha1.TrainJob)
	spec := job.Spec.DeepCopy()
	spec.Suspend = nil
	return []any{spec, job.Annotations, job.Labels}
}

// TestLargeJobsRun from submission to completion, suspended and resumed: the operator
// keeps only a part of them in memory, and neither creates pods from that part nor
// stores it.
func TestLargeJobsRun(t *testing.T) {
	for name, job := range map[string]client.Object{
		"MPIJob": mpiJob("train", suspended, func(job *v2beta1.MPIJob) {
			job.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "note": "mine"}
			for _, replica := range job.Spec.MPIReplicaSpecs {
				replica.Template.Spec.Containers[0].Env = muchEnvironment()
			}
		}),
		"TrainJob": trainJob("", "train", func(job *v2alpha1.TrainJob) {
			job.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "note": "mine"}
			job.Spec.Suspend = new(true)
			job.Spec.Trainer.Env = muchEnvironment()
		}),
	} {
		t.Run(name, func(t *testing.T) { largeJobRuns(t, job) })
	}
}

func largeJobRuns(t *testing.T, job client.Object) {
	place := parallel(t)
	// The runtime is large, too.
	place.Create(runtime("mpi", func(spec *v2alpha1.TrainingRuntimeSpec) {
		spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "OF_RUNTIME", Value: strings.Repeat("x", 2*partial.Threshold)}}
	}))
	place.createEventually(job)
	before := written(job)
	place.Until("it is suspended", job, func() error { return wantPrefix(job, "Suspended", "True") })
	place.Patch(job, map[bool]string{true: `{"spec":{"runPolicy":{"suspend":false}}}`, false: `{"spec":{"suspend":false}}`}[isMPIJob(job)])
	launcher, workers := place.runs(job)
	for _, pod := range workers {
		if names := len(pod.Spec.Containers[0].Env); names < 100 {
			t.Errorf("pod %s has %d variables", pod.Name, names)
		}
	}
	place.Exit(launcher, 0, report("", 2))
	place.untilPhase(job, training.PhaseSucceeded)
	if difference := cmp.Diff(before, written(job)); difference != "" {
		t.Errorf("what the user wrote has changed: %s", difference)
	}
}

func wantPrefix(job client.Object, kind, prefix string) error {
	answer, message := conditionOf(job, kind)
	if !strings.HasPrefix(answer, prefix) {
		return errors.New(kind + ": " + answer + " " + message)
	}
	return nil
}
