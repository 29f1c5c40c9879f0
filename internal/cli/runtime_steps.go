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
	seen *view
	pods []corev1.Pod
	// answered is the number of ranks that have printed their line, of all ranks.
	answered, ranks int
	// logUnknown is the reason why the log could not be read.
	logUnknown string
}

// steps returns the steps of the test. Once the job is over, the first step that was not
// reached has failed.
func (state *trialState) steps(over bool) (steps []trialStep) {
	submitted := state.seen.GetCreationTimestamp().Time
	failed := false
	add := func(name string, at time.Time, reached bool) {
		step := trialStep{Step: name, Result: stepNotReached}
		switch {
		case reached && !failed:
			step.Result = stepOK
			if !at.IsZero() {
				step.After = max(at.Sub(submitted), 0).Round(time.Second).String()
			}
		case over && !failed:
			step.Result, step.Message, failed = stepFailed, state.seen.Explanation(), true
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
		at, reached := state.seen.Reached(each.step)
		if each.step == "" {
			at, reached = state.started()
		}
		add(each.name, at, reached)
	}
	name := fmt.Sprintf("every rank answered (%d/%d)", state.answered, state.ranks)
	finished, _ := state.seen.Reached(training.StepFinished)
	add(name, finished, state.seen.Phase == training.PhaseSucceeded && state.answered == state.ranks)
	switch last := &steps[len(steps)-1]; {
	case last.Result != stepFailed || state.seen.Phase != training.PhaseSucceeded:
	case state.logUnknown != "":
		last.Result, last.Message = stepUnknown, "The job succeeded, but the output of its ranks cannot be read: "+state.logUnknown
	default:
		last.Message = "The job succeeded, but not every rank printed its line."
	}
	return steps
}

// started returns when the last pod had started, which includes pulling its image.
func (state *trialState) started() (at time.Time, all bool) {
	if ready, reached := state.seen.Reached(training.StepPodsReady); reached {
		at = ready
		all = true
	}
	if int32(len(state.pods)) < trialWorkers+1 {
		return at, all
	}
	latest := time.Time{}
	for i := range state.pods {
		started := containerStarted(&state.pods[i])
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

func (progress *trialProgress) begin() {
	if progress.output == "" {
		fmt.Fprintf(progress.Out, "Testing %s %s with TrainJob %s in namespace %s and image %s\n\n", progress.runtime.kind, progress.runtime.GetName(), progress.name, progress.namespace, progress.image)
	}
}

// see shows the new steps of the job.
func (progress *trialProgress) see(ctx context.Context, seen *view) error {
	state := trialState{seen: seen, pods: progress.last.pods, ranks: progress.ranks}
	var pods corev1.PodList
	// On an error, the status of the job is enough.
	if err := progress.api.List(ctx, &pods, client.InNamespace(progress.namespace), client.MatchingLabels(plan.Selector(seen.Identity()))); err == nil && len(pods.Items) >= len(state.pods) {
		state.pods = pods.Items
	}
	progress.last = state
	progress.show(state.steps(false))
	return nil
}

func (progress *trialProgress) show(steps []trialStep) {
	if progress.output != "" {
		return
	}
	for ; progress.shown < len(steps) && steps[progress.shown].Result != stepNotReached; progress.shown++ {
		step := steps[progress.shown]
		with := green
		if step.Result == stepFailed {
			with = red
		}
		line := step.Step
		if step.After != "" {
			line = fmt.Sprintf("%-38s after %s", step.Step, step.After)
		}
		fmt.Fprintf(progress.Out, "%s  %s\n", progress.terminal.paint(with, fmt.Sprintf("%-4s", step.Result)), line)
		(&findingsPrinter{to: progress.Out, terminal: progress.terminal}).lines(step.Message, "      ")
	}
}

// end reads the output of the ranks and prints the result.
func (progress *trialProgress) end(ctx context.Context, timedOut bool) error {
	state := progress.last
	if state.seen == nil {
		return &failure{code: exitTimeout, message: "the job could not be read in time", reason: "Timeout", suggestions: []string{"Allow more time: --timeout 10m"}}
	}
	if launcher := state.seen.LauncherPodStatus; launcher != nil && state.seen.Phase == training.PhaseSucceeded {
		log, err := progress.log(ctx, launcher.Name)
		if state.answered = ranksIn(log); err != nil {
			state.logUnknown = err.Error()
		}
	}
	steps := state.steps(true)
	last := steps[len(steps)-1].Result
	works := last == stepOK || last == stepUnknown
	if progress.output != "" {
		if err := progress.printDocument(trialReport{
			Runtime: progress.runtime.GetName(), Kind: string(progress.runtime.kind), Namespace: progress.namespace, Job: progress.name, Image: progress.image, Works: works, Steps: steps,
		}, progress.output); err != nil {
			return err
		}
	} else {
		progress.show(steps)
	}
	return progress.verdict(works, timedOut)
}

func (progress *trialProgress) verdict(works, timedOut bool) error {
	switch {
	case works:
		progress.say("The runtime works.")
		return nil
	case timedOut:
		progress.say("The test did not finish within %s. Allow more time: --timeout 10m", progress.timeout)
		return exit(exitTimeout)
	}
	progress.say("The runtime does not work.")
	if !progress.keep {
		progress.say("Keep the job to find the cause: %s runtime test %s --keep, and then %s diagnose", progress.calledAs, progress.runtime.GetName(), progress.calledAs)
	}
	return exit(exitError)
}
