package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// surroundings are the objects besides the job that describe shows. Objects that may
// not be read are left out.
type surroundings struct {
	// made is nil if the job's runtime does not exist.
	made   *job.Job
	pods   []corev1.Pod
	events []corev1.Event
	// noPods and noEvents: pods or events may not be read.
	noPods, noEvents bool
}

func (around *surroundings) has(pod string) bool {
	return slices.ContainsFunc(around.pods, func(known corev1.Pod) bool { return known.Name == pod })
}

func newDescribeCommand(environment *environment, kind *kind) *cobra.Command {
	var output string
	var watching bool
	command := &cobra.Command{
		Example: fmt.Sprintf(`  odh %[1]s describe hello
  odh %[1]s describe hello --watch`, kind.Command),
		Args: cobra.ExactArgs(1), ValidArgsFunction: environment.completeNames(kind, one),
		RunE: func(command *cobra.Command, arguments []string) error {
			namespace, err := environment.namespace()
			if err != nil {
				return err
			}
			from, err := environment.client()
			if err != nil {
				return err
			}
			show := environment.showDescription
			switch output {
			case "":
			case "json", "yaml":
				show = func(_ context.Context, _ client.Reader, seen *view) error { return environment.printJob(seen, output) }
			default:
				return usageFailure(command, fmt.Sprintf("--output must be json or yaml, not %q", output))
			}
			if watching {
				return environment.describeChanges(command.Context(), from, kind, namespace, arguments[0], output, show)
			}
			seen, err := kind.Get(command.Context(), from, namespace, arguments[0])
			if err != nil {
				return err
			}
			return show(command.Context(), from, seen)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml")
	command.Flags().BoolVarP(&watching, "watch", "w", false, "Show the job again whenever it changes, until it has finished")
	return command
}

// describeChanges shows a job whenever it changes, in place if the terminal can do
// that.
func (environment *environment) describeChanges(ctx context.Context, from client.WithWatch, kind *kind, namespace, name, output string,
	show func(context.Context, client.Reader, *view) error) error {
	first := true
	err := followJob(ctx, kind, from, namespace, name, func(seen *view) (bool, error) {
		switch {
		case environment.terminal.live && output == "":
			control(environment.Out, "\x1b[H\x1b[2J")
		case !first && output != "json":
			fmt.Fprintln(environment.Out, "---")
		}
		first = false
		return seen.Finished(), show(ctx, from, seen)
	})
	if ctx.Err() != nil {
		return exit(exitInterrupted)
	}
	return err
}

func (environment *environment) printJob(seen *view, output string) error {
	object, err := asUnstructured(seen.Object, seen.Kind)
	if err != nil {
		return err
	}
	return environment.printDocument(object.Object, output)
}

func (environment *environment) showDescription(ctx context.Context, from client.Reader, seen *view) error {
	around := environment.look(ctx, from, seen)
	(&description{to: environment.Out, terminal: environment.terminal, now: environment.clock.Now(), calledAs: environment.calledAs}).print(seen, around)
	return nil
}

// look reads the surroundings of a job. It warns of what cannot be read and returns
// the rest.
func (environment *environment) look(ctx context.Context, from client.Reader, seen *view) *surroundings {
	around := &surroundings{}
	var err error
	if around.made, err = seen.Model(ctx, from); err != nil {
		environment.say("Warning: cannot determine the resources of the job: %s", explain(err, environment.calledAs).message)
	}
	var pods corev1.PodList
	if err := from.List(ctx, &pods, client.InNamespace(seen.GetNamespace()), client.MatchingLabels(plan.Selector(seen.Identity()))); err != nil {
		around.noPods = true
		environment.say("Warning: cannot list the pods of the job: %s", explain(err, environment.calledAs).message)
	}
	around.pods = pods.Items
	names := map[string]bool{}
	for i := range pods.Items {
		names[pods.Items[i].Name] = true
	}
	around.events, err = jobview.Events(ctx, from, seen, names)
	if err != nil {
		around.noEvents = true
		environment.say("Warning: cannot list the events of the job: %s", explain(err, environment.calledAs).message)
	}
	return around
}
