// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// Results of a step.
const (
	stepOK         = "ok"
	stepFailed     = "fail"
	stepNotReached = "not reached"
	// stepUnknown: the output of the ranks could not be read.
	stepUnknown = "not known"
)

// trialStep is one step of the test of a runtime.
type trialStep struct {
	Step   string `json:"step"`
	Result string `json:"result"`
	// After is the time from submission.
	After   string `json:"after,omitempty"`
	Message string `json:"message,omitempty"`
}

// trialReport is the output of `odh runtime test` with -o json or yaml.
type trialReport struct {
	Runtime   string      `json:"runtime"`
	Kind      string      `json:"kind"`
	Namespace string      `json:"namespace"`
	Job       string      `json:"job"`
	Image     string      `json:"image"`
	Works     bool        `json:"works"`
	Steps     []trialStep `json:"steps"`
}

// trialState is the state of the test job.
type trialState struct {
	job  *view
	pods []corev1.Pod
	// answered is the number of ranks that have printed their line, of all ranks.
	answered, ranks int
	// logError is the reason why the log could not be read.
	logError string
}

// steps returns the steps of the test. If final is set, the first step that was not
// reached has failed.
func (s *trialState) steps(final bool) (steps []trialStep) {
	submitted := s.job.GetCreationTimestamp().Time
	failed := false
	add := func(name string, at time.Time, reached bool) {
		step := trialStep{Step: name, Result: stepNotReached}
		switch {
		case reached && !failed:
			step.Result = stepOK
			if !at.IsZero() {
				step.After = max(at.Sub(submitted), 0).Round(time.Second).String()
			}
		case final && !failed:
			step.Result, step.Message, failed = stepFailed, s.job.Explanation(), true
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
		at, reached := s.job.Reached(each.step)
		if each.step == "" {
			at, reached = s.started()
		}
		add(each.name, at, reached)
	}
	name := fmt.Sprintf("every rank answered (%d/%d)", s.answered, s.ranks)
	finished, _ := s.job.Reached(training.StepFinished)
	add(name, finished, s.job.Phase == training.PhaseSucceeded && s.answered == s.ranks)
	switch last := &steps[len(steps)-1]; {
	case last.Result != stepFailed || s.job.Phase != training.PhaseSucceeded:
	case s.logError != "":
		last.Result, last.Message = stepUnknown, "The job succeeded, but the output of its ranks cannot be read: "+s.logError
	default:
		last.Message = "The job succeeded, but not every rank printed its line."
	}
	return steps
}

// started returns when the last pod had started, which includes pulling its image.
func (s *trialState) started() (at time.Time, all bool) {
	if ready, reached := s.job.Reached(training.StepPodsReady); reached {
		at = ready
		all = true
	}
	if int32(len(s.pods)) < trialWorkers+1 {
		return at, all
	}
	latest := time.Time{}
	for i := range s.pods {
		started := containerStarted(&s.pods[i])
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

// trialProgress shows steps as they are reached.
type trialProgress struct {
	*trial
	name  string
	ranks int
	last  trialState
	shown int
}

func (p *trialProgress) begin() {
	if p.output == "" {
		fmt.Fprintf(p.Out, "Testing %s %s with TrainJob %s in namespace %s and image %s\n\n", p.runtime.kind, p.runtime.GetName(), p.name, p.namespace, p.image)
	}
}

// see shows the new steps of the job.
func (p *trialProgress) see(ctx context.Context, j *view) error {
	state := trialState{job: j, pods: p.last.pods, ranks: p.ranks}
	var pods corev1.PodList
	// On an error, the status of the job is enough.
	if err := p.api.List(ctx, &pods, client.InNamespace(p.namespace), client.MatchingLabels(plan.Selector(j.Identity()))); err == nil && len(pods.Items) >= len(state.pods) {
		state.pods = pods.Items
	}
	p.last = state
	p.show(state.steps(false))
	return nil
}

func (p *trialProgress) show(steps []trialStep) {
	if p.output != "" {
		return
	}
	for ; p.shown < len(steps) && steps[p.shown].Result != stepNotReached; p.shown++ {
		step := steps[p.shown]
		c := green
		if step.Result == stepFailed {
			c = red
		}
		line := step.Step
		if step.After != "" {
			line = fmt.Sprintf("%-38s after %s", step.Step, step.After)
		}
		fmt.Fprintf(p.Out, "%s  %s\n", p.terminal.paint(c, fmt.Sprintf("%-4s", step.Result)), line)
		(&findingsPrinter{to: p.Out, terminal: p.terminal}).lines(step.Message, "      ")
	}
}

// end reads the output of the ranks and prints the result.
func (p *trialProgress) end(ctx context.Context, timedOut bool) error {
	state := p.last
	if state.job == nil {
		return &failure{code: exitTimeout, message: "the job could not be read in time", reason: "Timeout", suggestions: []string{"Allow more time: --timeout 10m"}}
	}
	if launcher := state.job.LauncherPodStatus; launcher != nil && state.job.Phase == training.PhaseSucceeded {
		log, err := p.log(ctx, launcher.Name)
		if state.answered = ranksIn(log); err != nil {
			state.logError = err.Error()
		}
	}
	steps := state.steps(true)
	last := steps[len(steps)-1].Result
	works := last == stepOK || last == stepUnknown
	if p.output != "" {
		if err := p.printDocument(trialReport{
			Runtime: p.runtime.GetName(), Kind: string(p.runtime.kind), Namespace: p.namespace, Job: p.name, Image: p.image, Works: works, Steps: steps,
		}, p.output); err != nil {
			return err
		}
	} else {
		p.show(steps)
	}
	return p.verdict(works, timedOut)
}

func (p *trialProgress) verdict(works, timedOut bool) error {
	switch {
	case works:
		p.say("The runtime works.")
		return nil
	case timedOut:
		p.say("The test did not finish within %s. Allow more time: --timeout 10m", p.timeout)
		return exit(exitTimeout)
	}
	p.say("The runtime does not work.")
	if !p.keep {
		p.say("Keep the job to find the cause: %s runtime test %s --keep, and then %s diagnose", p.calledAs, p.runtime.GetName(), p.calledAs)
	}
	return exit(exitError)
}
