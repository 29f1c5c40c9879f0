package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/checks"
)

// diagnosed is what `odh diagnose` tells, as a document.
type diagnosed struct {
	Kind           string                 `json:"kind"`
	Namespace      string                 `json:"namespace"`
	Name           string                 `json:"name"`
	State          string                 `json:"state"`
	Workers        string                 `json:"workers"`
	Explanation    string                 `json:"explanation"`
	FailureReason  training.FailureReason `json:"failureReason,omitempty"`
	FailureMessage string                 `json:"failureMessage,omitempty"`
	// Conditions are what the operator answers, one question at a time.
	Conditions []answered `json:"conditions"`
	// Hindered: something keeps the job from going on.
	Hindered bool             `json:"hindered"`
	Findings []checks.Finding `json:"findings"`
}

// answered is a question about a job, and the operator's answer.
type answered struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

func answers(conditions []metav1.Condition) []answered {
	told := []answered{}
	for _, condition := range conditions {
		told = append(told, answered{condition.Type, string(condition.Status), condition.Reason, condition.Message})
	}
	return told
}

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
			from, err := environment.client(checks.OptionalKinds()...)
			if err != nil {
				return err
			}
			seen, err := environment.findOf(command.Context(), from, kind, namespace, arguments[0])
			if err != nil {
				return err
			}
			gatherer := checks.Gatherer{Reader: from, Now: environment.clock.Now(), OperatorNamespace: operatorNamespace}
			return environment.diagnose(command.Context(), &gatherer, seen, output)
		},
	}
	if kind != nil {
		command.ValidArgsFunction = environment.completeNames(kind, one)
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	command.Flags().StringVar(&operatorNamespace, "operator-namespace", checks.DefaultOperatorNamespace, "namespace that the operator runs in")
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

func (environment *environment) diagnose(ctx context.Context, gatherer *checks.Gatherer, seen *view, output string) error {
	found := &diagnosed{
		Kind: string(seen.Kind.Kind), Namespace: seen.GetNamespace(), Name: seen.GetName(), State: seen.State(), Workers: seen.Workers(), Explanation: seen.Explanation(),
		FailureReason: seen.FailureReason, FailureMessage: seen.FailureMessage, Conditions: answers(seen.Conditions), Findings: checks.Diagnose(gatherer.OfJob(ctx, seen.Object)),
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	found.Hindered = slices.ContainsFunc(found.Findings, func(finding checks.Finding) bool { return finding.Rank.Hinders() })
	if found.Findings == nil {
		found.Findings = []checks.Finding{}
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
