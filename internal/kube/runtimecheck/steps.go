// SPDX-License-Identifier: Apache-2.0

package runtimecheck

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// Results of a step.
const (
	OK         = "ok"
	Failed     = "fail"
	NotReached = "not reached"
	// Unknown: the output of the ranks could not be read.
	Unknown = "not known"
)

// TrialStep is one step of the test of a runtime.
type TrialStep struct {
	Step   string `json:"step"`
	Result string `json:"result"`
	// After is the time from submission.
	After   string `json:"after,omitempty"`
	Message string `json:"message,omitempty"`
}

// TrialReport is how far the test of a runtime has come, or its result.
type TrialReport struct {
	Runtime   string `json:"runtime"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Image     string `json:"image"`
	// Finished is false while the test runs.
	Finished bool        `json:"finished"`
	Works    bool        `json:"works"`
	Steps    []TrialStep `json:"steps"`
}

// State is the state of a test job.
type State struct {
	Job  *jobview.View
	Pods []corev1.Pod
	// Answered is the number of ranks that have printed their line, of all Ranks.
	Answered, Ranks int
	// LogError is the reason why the log could not be read.
	LogError string
}

// Steps returns the steps of the test. If final is set, the first step that was not
// reached has failed.
func (s *State) Steps(final bool) (steps []TrialStep) {
	submitted := s.Job.GetCreationTimestamp().Time
	failed := false
	add := func(name string, at time.Time, reached bool) {
		step := TrialStep{Step: name, Result: NotReached}
		switch {
		case reached && !failed:
			step.Result = OK
			if !at.IsZero() {
				step.After = max(at.Sub(submitted), 0).Round(time.Second).String()
			}
		case final && !failed:
			step.Result, step.Message, failed = Failed, s.Job.Explanation(), true
		default:
			failed = true
		}
		steps = append(steps, step)
	}
	add("job accepted", submitted, true)
	for _, each := range []struct {
		name string
		step training.TimelineStep
	}{
		{"pods scheduled", training.StepScheduled}, {"image pulled", ""}, {"workers reached with the job's keys", training.StepWorkersReached},
		{"ranks started", training.StepFirstRankUp},
	} {
		at, reached := s.Job.Reached(each.step)
		if each.step == "" {
			at, reached = s.started()
		}
		add(each.name, at, reached)
	}
	name := fmt.Sprintf("every rank answered (%d/%d)", s.Answered, s.Ranks)
	finished, _ := s.Job.Reached(training.StepFinished)
	add(name, finished, s.Job.Phase == training.PhaseSucceeded && s.Answered == s.Ranks)
	switch last := &steps[len(steps)-1]; {
	case last.Result != Failed || s.Job.Phase != training.PhaseSucceeded:
	case s.LogError != "":
		last.Result, last.Message = Unknown, "The job succeeded, but the output of its ranks cannot be read: "+s.LogError
	default:
		last.Message = "The job succeeded, but not every rank printed its line."
	}
	return steps
}

// Works tells whether the steps of a finished test say that the runtime works.
func Works(steps []TrialStep) bool {
	last := steps[len(steps)-1].Result
	return last == OK || last == Unknown
}

// started returns when the last pod had started, which includes pulling its image.
func (s *State) started() (at time.Time, all bool) {
	if ready, reached := s.Job.Reached(training.StepPodsReady); reached {
		at = ready
		all = true
	}
	if len(s.Pods) < Workers+1 {
		return at, all
	}
	latest := time.Time{}
	for i := range s.Pods {
		started := containerStarted(&s.Pods[i])
		if started.IsZero() {
			return at, all
		}
		if started.After(latest) {
			latest = started
		}
	}
	return latest, true
}

// containerStarted returns when the first container of a pod started, or zero.
func containerStarted(pod *corev1.Pod) time.Time {
	for _, status := range pod.Status.ContainerStatuses {
		if len(pod.Spec.Containers) == 0 || status.Name != pod.Spec.Containers[0].Name {
			continue
		}
		if running := status.State.Running; running != nil {
			return running.StartedAt.Time
		}
		if ended := status.State.Terminated; ended != nil {
			return ended.StartedAt.Time
		}
	}
	return time.Time{}
}
