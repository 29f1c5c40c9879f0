package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
)

// newDiagnoseCommand is `odh diagnose JOB` and, with a kind, `odh mpijob diagnose NAME`.
func newDiagnoseCommand(environment *environment, kind *kind) *cobra.Command {
	var output, operatorNamespace string
	command := &cobra.Command{
		Use: "diagnose JOB", Short: "Find out what keeps a job from running, or why it failed",
		Long: `Find out what keeps a job from running, or why it failed: what the operator knows, and what can be seen
in the cluster now. The most likely cause comes first, each with what to do about it. What you may not
read is not known, and the rest is looked at all the same.

The exit code is 0 if nothing hinders the job or it has succeeded, 1 if something does, 6 if it failed.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: environment.completeJobs,
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := isDocument(command, output); err != nil {
				return err
			}
			namespace, err := environment.namespace()
			if err != nil {
				return err
			}
			from, err := environment.client(connection.OptionalKinds()...)
			if err != nil {
				return err
			}
			seen, err := environment.findOf(command.Context(), from, kind, namespace, arguments[0])
			if err != nil {
				return err
			}
			gatherer := preflight.Gatherer{Reader: from, Now: environment.clock.Now(), OperatorNamespace: operatorNamespace}
			return environment.diagnose(command.Context(), &gatherer, seen, output)
		},
	}
	if kind != nil {
		command.ValidArgsFunction = environment.completeNames(kind, one)
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	command.Flags().StringVar(&operatorNamespace, "operator-namespace", preflight.DefaultOperatorNamespace, "namespace that the operator runs in")
	return command
}

// isDocument refuses output forms that there are not.
func isDocument(command *cobra.Command, output string) error {
	if output == "" || output == "json" || output == "yaml" {
		return nil
	}
	return usageFailure(command, fmt.Sprintf("--output %q: there are json and yaml", output))
}

// findOf reads a job of a kind or, without one, of either.
func (environment *environment) findOf(ctx context.Context, from client.Reader, kind *kind, namespace, name string) (*view, error) {
	if kind == nil {
		return environment.find(ctx, from, namespace, name)
	}
	return kind.Get(ctx, from, namespace, name)
}

func (environment *environment) diagnose(ctx context.Context, gatherer *preflight.Gatherer, seen *view, output string) error {
	found := preflight.DiagnosisOf(ctx, gatherer, seen)
	if err := ctx.Err(); err != nil {
		return err
	}
	if output != "" {
		if err := environment.printDocument(found, output); err != nil {
			return err
		}
	} else {
		(&findingsPrinter{to: environment.Out, terminal: environment.terminal, calledAs: environment.calledAs}).diagnosis(found)
	}
	switch {
	case seen.Phase == training.PhaseFailed:
		return exit(exitJobFailed)
	case found.Hindered:
		return exit(exitError)
	default:
		return nil
	}
}
