// SPDX-License-Identifier: Apache-2.0

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
func newDiagnoseCommand(env *environment, kind *kind) *cobra.Command {
	var output, operatorNamespace string
	command := &cobra.Command{
		Use: "diagnose JOB", Short: "Explain why a job is not running or has failed",
		Long: `Explain why a job is not running or has failed. The command checks the status of the job and the current
state of the cluster, and lists the causes, the most likely one first, each with a fix. What you have no
permission to read is listed as not known.

The exit code is 0 if there is no problem or the job has succeeded, 1 if there is a problem, 6 if the job
has failed.`,
		Example: `  odh diagnose hello
  odh diagnose mpijob/hello -n team-a
  odh diagnose hello -o json`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: env.completeJobs,
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := checkDocumentOutput(command, output); err != nil {
				return err
			}
			namespace, err := env.namespace()
			if err != nil {
				return err
			}
			api, err := env.client(connection.OptionalKinds()...)
			if err != nil {
				return err
			}
			j, err := env.findJob(command.Context(), api, kind, namespace, arguments[0])
			if err != nil {
				return err
			}
			gatherer := preflight.Gatherer{Reader: api, Now: env.clock.Now(), OperatorNamespace: operatorNamespace}
			return env.diagnose(command.Context(), &gatherer, j, output)
		},
	}
	if kind != nil {
		command.ValidArgsFunction = env.completeNames(kind, one)
	}
	command.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml")
	command.Flags().StringVar(&operatorNamespace, "operator-namespace", preflight.DefaultOperatorNamespace, "Namespace of the operator")
	return command
}

// checkDocumentOutput checks that the output format is json, yaml or none.
func checkDocumentOutput(command *cobra.Command, output string) error {
	if output == "" || output == "json" || output == "yaml" {
		return nil
	}
	return usageFailure(command, fmt.Sprintf("--output must be json or yaml, not %q", output))
}

// findJob reads a job of a kind or, if kind is nil, of either kind.
func (e *environment) findJob(ctx context.Context, api client.Reader, kind *kind, namespace, name string) (*view, error) {
	if kind == nil {
		return e.find(ctx, api, namespace, name)
	}
	return kind.Get(ctx, api, namespace, name)
}

func (e *environment) diagnose(ctx context.Context, gatherer *preflight.Gatherer, j *view, output string) error {
	diagnosis := preflight.DiagnosisOf(ctx, gatherer, j)
	if err := ctx.Err(); err != nil {
		return err
	}
	if output != "" {
		if err := e.printDocument(diagnosis, output); err != nil {
			return err
		}
	} else {
		(&findingsPrinter{to: e.Out, terminal: e.terminal, calledAs: e.calledAs, now: e.clock.Now()}).diagnosis(diagnosis)
	}
	switch {
	case j.Phase == training.PhaseFailed:
		return exit(exitJobFailed)
	case diagnosis.Hindered:
		return exit(exitError)
	default:
		return nil
	}
}
