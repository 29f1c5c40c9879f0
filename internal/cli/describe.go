// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
)

// relatedObjects are the objects besides the job that describe shows. Objects that may
// not be read are left out.
type relatedObjects struct {
	// model is nil if the job's runtime does not exist.
	model  *job.Job
	pods   []corev1.Pod
	events []corev1.Event
	// waiting is why the job waits; nil if it does not.
	waiting *preflight.Waiting
	// noPods and noEvents: pods or events may not be read.
	noPods, noEvents bool
}

func (r *relatedObjects) hasPod(pod string) bool {
	return slices.ContainsFunc(r.pods, func(p corev1.Pod) bool { return p.Name == pod })
}

func newDescribeCommand(env *environment, kind *kind) *cobra.Command {
	var output string
	var watching bool
	command := &cobra.Command{
		Example: fmt.Sprintf(`  odh %[1]s describe hello
  odh %[1]s describe hello --watch`, kind.Command),
		Args: cobra.ExactArgs(1), ValidArgsFunction: env.completeNames(kind, one),
		RunE: func(command *cobra.Command, arguments []string) error {
			namespace, err := env.namespace()
			if err != nil {
				return err
			}
			api, err := env.client(connection.OptionalKinds()...)
			if err != nil {
				return err
			}
			show := env.showDescription
			switch output {
			case "":
			case "json", "yaml":
				show = func(_ context.Context, _ client.Reader, j *view) error { return env.printJob(j, output) }
			default:
				return usageFailure(command, fmt.Sprintf("--output must be json or yaml, not %q", output))
			}
			if watching {
				return env.describeChanges(command.Context(), api, kind, namespace, arguments[0], output, show)
			}
			j, err := kind.Get(command.Context(), api, namespace, arguments[0])
			if err != nil {
				return err
			}
			return show(command.Context(), api, j)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml")
	command.Flags().BoolVarP(&watching, "watch", "w", false, "Show the job again whenever it changes, until it has finished")
	return command
}

// describeChanges shows a job whenever it changes, in place if the terminal can do
// that.
func (e *environment) describeChanges(ctx context.Context, api client.WithWatch, kind *kind, namespace, name, output string,
	show func(context.Context, client.Reader, *view) error) error {
	first := true
	err := followJob(ctx, kind, api, namespace, name, func(j *view) (bool, error) {
		switch {
		case e.terminal.live && output == "":
			control(e.Out, "\x1b[H\x1b[2J")
		case !first && output != "json":
			fmt.Fprintln(e.Out, "---")
		}
		first = false
		return j.Finished(), show(ctx, api, j)
	})
	if ctx.Err() != nil {
		return exit(exitInterrupted)
	}
	return err
}

func (e *environment) printJob(j *view, output string) error {
	object, err := asUnstructured(j.Object, j.Kind)
	if err != nil {
		return err
	}
	return e.printDocument(object.Object, output)
}

func (e *environment) showDescription(ctx context.Context, api client.Reader, j *view) error {
	related := e.readRelated(ctx, api, j)
	(&description{to: e.Out, terminal: e.terminal, now: e.clock.Now(), calledAs: e.calledAs}).print(j, related)
	return nil
}

// readRelated reads the objects related to a job. It warns of what cannot be read and returns
// the rest.
func (e *environment) readRelated(ctx context.Context, api client.Reader, j *view) *relatedObjects {
	related := &relatedObjects{}
	var err error
	if related.model, err = j.Model(ctx, api); err != nil {
		e.say("Warning: cannot determine the resources of the job: %s", explain(err, e.calledAs).message)
	}
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(j.GetNamespace()), client.MatchingLabels(plan.Selector(j.Identity()))); err != nil {
		related.noPods = true
		e.say("Warning: cannot list the pods of the job: %s", explain(err, e.calledAs).message)
	}
	related.pods = pods.Items
	names := map[string]bool{}
	for i := range pods.Items {
		names[pods.Items[i].Name] = true
	}
	related.events, err = jobview.Events(ctx, api, j, names)
	if err != nil {
		related.noEvents = true
		e.say("Warning: cannot list the events of the job: %s", explain(err, e.calledAs).message)
	}
	if _, started := j.Reached(training.StepWorkersReached); !started && !j.Finished() {
		gatherer := preflight.Gatherer{Reader: api, Now: e.clock.Now(), OperatorNamespace: preflight.DefaultOperatorNamespace}
		related.waiting = preflight.DiagnosisOf(ctx, &gatherer, j).Waiting
	}
	return related
}
