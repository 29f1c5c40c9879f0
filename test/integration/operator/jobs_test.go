// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

// The jobs that most tests are about, and what is played for them.
var (
	mpiJob      = player.MPIJob
	trainJob    = player.TrainJob
	runtime     = player.Runtime
	runtimeSpec = player.RuntimeSpec
	resources   = player.Resources
	progressOf  = player.ProgressOf
	isMPIJob    = player.IsMPIJob
	report      = player.Report
)

// suspended creates an MPIJob as Kueue's webhook leaves it.
func suspended(job *v2beta1.MPIJob) {
	job.Labels = map[string]string{training.LabelQueue: "team"}
	job.Spec.RunPolicy.Suspend = new(true)
}

// conditionOf is a condition of a job of either kind, as "True Reason", and its
// message.
func conditionOf(object client.Object, kind string) (answer, message string) {
	if mpiJob, is := object.(*v2beta1.MPIJob); is {
		for _, condition := range mpiJob.Status.Conditions {
			if string(condition.Type) == kind {
				return string(condition.Status) + " " + condition.Reason, condition.Message
			}
		}
		return "", ""
	}
	condition := meta.FindStatusCondition(object.(*v2alpha1.TrainJob).Status.Conditions, kind)
	if condition == nil {
		return "", ""
	}
	return string(condition.Status) + " " + condition.Reason, condition.Message
}

// wantConditions are pairs of a condition and its answer.
func wantConditions(object client.Object, pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if answer, message := conditionOf(object, pairs[i]); answer != pairs[i+1] {
			return fmt.Errorf("the condition %s is %q (%s), want %q", pairs[i], answer, message, pairs[i+1])
		}
	}
	return nil
}

// untilPhase waits until a job has come so far.
func (place *place) untilPhase(object client.Object, phase training.Phase) {
	place.Helper()
	place.Until(fmt.Sprintf("%s is %s", object.GetName(), phase), object, func() error {
		if progress := progressOf(object); progress.Phase != phase {
			return fmt.Errorf("it is %s: %+v", progress.Phase, progress)
		}
		return nil
	})
}

func stepsOf(progress *training.Progress) (steps []training.TimelineStep) {
	for _, entry := range progress.Timeline {
		steps = append(steps, entry.Step)
	}
	return steps
}

func wantSteps(progress *training.Progress, want ...training.TimelineStep) error {
	if got := stepsOf(progress); !slices.Equal(got, want) {
		return fmt.Errorf("the timeline has %v, want %v", got, want)
	}
	return nil
}

// runs has a job of either kind run: every pod is placed, runs and is ready.
func (place *place) runs(job client.Object) (launcher *corev1.Pod, workers []*corev1.Pod) {
	place.Helper()
	launcher, workers = place.UntilPods(job)
	all := append([]*corev1.Pod{launcher}, workers...)
	place.Assign(all...)
	place.StartContainers(all...)
	place.Ready(all...)
	place.untilPhase(job, training.PhaseRunning)
	return launcher, workers
}
