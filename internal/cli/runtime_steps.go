// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/runtimecheck"
)

// trialProgress shows steps as they are reached.
type trialProgress struct {
	*trial
	name  string
	ranks int
	last  runtimecheck.State
	shown int
}

func (p *trialProgress) begin() {
	if p.output == "" {
		fmt.Fprintf(p.Out, "Testing %s %s with TrainJob %s in namespace %s and image %s\n\n", p.runtime.kind, p.runtime.GetName(), p.name, p.namespace, p.Image)
	}
}

// see shows the new steps of the job.
func (p *trialProgress) see(ctx context.Context, j *view) error {
	state := runtimecheck.State{Job: j, Pods: p.last.Pods, Ranks: p.ranks}
	var pods corev1.PodList
	// On an error, the status of the job is enough.
	if err := p.api.List(ctx, &pods, client.InNamespace(p.namespace), client.MatchingLabels(plan.Selector(j.Identity()))); err == nil && len(pods.Items) >= len(state.Pods) {
		state.Pods = pods.Items
	}
	p.last = state
	p.show(state.Steps(false))
	return nil
}

func (p *trialProgress) show(steps []runtimecheck.TrialStep) {
	if p.output != "" {
		return
	}
	for ; p.shown < len(steps) && steps[p.shown].Result != runtimecheck.NotReached; p.shown++ {
		step := steps[p.shown]
		c := green
		if step.Result == runtimecheck.Failed {
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
	if state.Job == nil {
		return &failure{code: exitTimeout, message: "the job could not be read in time", reason: "Timeout", suggestions: []string{"Allow more time: --timeout 10m"}}
	}
	if launcher := state.Job.LauncherPodStatus; launcher != nil && state.Job.Phase == training.PhaseSucceeded {
		log, err := p.log(ctx, launcher.Name)
		if state.Answered = ranksIn(log); err != nil {
			state.LogError = err.Error()
		}
	}
	steps := state.Steps(true)
	works := runtimecheck.Works(steps)
	if p.output != "" {
		if err := p.printDocument(runtimecheck.TrialReport{
			Runtime: p.runtime.GetName(), Kind: string(p.runtime.kind), Namespace: p.namespace, Job: p.name, Image: p.Image, Finished: state.Job.Finished(), Works: works, Steps: steps,
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
		p.say("The test did not finish within %s. Allow more time: --timeout 10m", p.Timeout)
		return exit(exitTimeout)
	}
	p.say("The runtime does not work.")
	if !p.Keep {
		p.say("Keep the job to find the cause: %s runtime test %s --keep, and then %s diagnose", p.calledAs, p.runtime.GetName(), p.calledAs)
	}
	return exit(exitError)
}
