// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
)

func newPreflightCommand(env *environment) *cobra.Command {
	var file, output, operatorNamespace string
	command := &cobra.Command{
		Use: "preflight [-f FILE]", Short: "Check a job before you submit it, or check a namespace",
		Long: `Check a TrainJob or MPIJob before you submit it: validation rules, permissions, runtime, quota,
NetworkPolicies, images, GPUs, nodes, storage and queue. Nothing is created. Without a file, check the
namespace.

The exit code is 0 if no check failed, 4 if you have no permission to create jobs, 5 if only the quota
is exceeded, and 1 otherwise.`,
		Example: `  odh preflight
  odh preflight -f job.yaml
  odh preflight -f - -o json < job.yaml`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := checkDocumentOutput(command, output); err != nil {
				return err
			}
			object, err := env.jobToCheck(file)
			if err != nil {
				return err
			}
			api, err := env.client(connection.OptionalKinds()...)
			if err != nil {
				return err
			}
			// The findings include the warnings of the API server.
			env.warnings.to = io.Discard
			gatherer := &preflight.Gatherer{Reader: api, Now: env.clock.Now(), OperatorNamespace: operatorNamespace}
			return env.preflight(command, gatherer, api, object, output)
		},
	}
	command.Flags().StringVarP(&file, "filename", "f", "", "File that contains the job, or - for standard input")
	command.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml")
	command.Flags().StringVar(&operatorNamespace, "operator-namespace", preflight.DefaultOperatorNamespace, "Namespace of the operator")
	return command
}

// jobToCheck returns the job in a file, of either kind, with its namespace set. It is
// nil without a file.
func (e *environment) jobToCheck(file string) (client.Object, error) {
	if file == "" {
		return nil, nil
	}
	document, name, err := e.oneDocument(file)
	if err != nil {
		return nil, err
	}
	kind := kindOf(document)
	manifest, err := decodeJob(document, name, kind)
	if err != nil {
		return nil, err
	}
	// As create does.
	if err := (&creator{environment: e}).setNamespace(manifest); err != nil {
		return nil, err
	}
	object := kind.NewObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(manifest.Object, object); err != nil {
		return nil, inputFailure(fmt.Sprintf("%s is not a valid %s", name, kind.Kind), err.Error())
	}
	if object.GetName() == "" && object.GetGenerateName() != "" {
		object.SetName(object.GetGenerateName() + "xxxxx")
	}
	if object.GetName() == "" {
		return nil, inputFailure(fmt.Sprintf("the %s in %s has no name", kind.Kind, name), "metadata.name: Required value")
	}
	return object, nil
}

// kindOf returns the kind of a document, TrainJob if it is unknown.
func kindOf(document []byte) *kind {
	var meta metav1.TypeMeta
	_ = json.Unmarshal(document, &meta)
	index := slices.IndexFunc(kinds, func(kind *kind) bool { return meta.Kind == string(kind.Kind) })
	return kinds[max(index, 0)]
}

func (e *environment) preflight(command *cobra.Command, gatherer *preflight.Gatherer, api client.Client, object client.Object, output string) error {
	ctx := command.Context()
	var facts *preflight.Facts
	if object == nil {
		namespace, err := e.namespace()
		if err != nil {
			return err
		}
		facts = gatherer.OfNamespace(ctx, api, namespace)
	} else {
		facts = gatherer.BeforeSubmission(ctx, api, object)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	checked := preflight.NewPreflightReport(facts)
	if output != "" {
		if err := e.printDocument(checked, output); err != nil {
			return err
		}
	} else {
		(&findingsPrinter{to: e.Out, terminal: e.terminal, calledAs: e.calledAs}).preflight(checked)
	}
	return preflightExit(&checked.Report)
}

// preflightExit returns the exit code for a report.
func preflightExit(report *preflight.Report) error {
	forbidden := slices.ContainsFunc(report.Outcomes, func(outcome preflight.Outcome) bool {
		return outcome.Check == preflight.CheckPermissions && outcome.Result == preflight.Fail
	})
	switch {
	case forbidden:
		return exit(exitForbidden)
	case report.QuotaAlone():
		return exit(exitQuota)
	case report.Number(preflight.Fail) > 0:
		return exit(exitError)
	default:
		return nil
	}
}

func resultColour(result preflight.Result) colour {
	switch result {
	case preflight.OK:
		return green
	case preflight.Fail:
		return red
	case preflight.Warning:
		return yellow
	default:
		return cyan
	}
}

func (p *findingsPrinter) preflight(checked *preflight.PreflightReport) {
	subject := "Namespace " + p.terminal.paint(bold, checked.Namespace)
	if checked.Name != "" {
		subject = fmt.Sprintf("%s %s in namespace %s", checked.Kind, p.terminal.paint(bold, checked.Name), checked.Namespace)
	}
	score := fmt.Sprintf("%d/%d checks passed", checked.Passed, checked.Total)
	for _, result := range []preflight.Result{preflight.Fail, preflight.Warning, preflight.Unknown} {
		if number := checked.Number(result); number > 0 {
			score += fmt.Sprintf(", %d %s", number, resultLabels[result])
		}
	}
	fmt.Fprintf(p.to, "%s: %s\n\n", subject, score)
	for i := range checked.Outcomes {
		p.outcome(&checked.Outcomes[i])
	}
}

var resultLabels = map[preflight.Result]string{preflight.Fail: "failed", preflight.Warning: "with a warning", preflight.Unknown: "not known"}

func (p *findingsPrinter) outcome(outcome *preflight.Outcome) {
	result := fmt.Sprintf("%-9s", outcome.Result)
	fmt.Fprintf(p.to, "%s  %s\n", p.terminal.paint(resultColour(outcome.Result), result), p.terminal.paint(bold, outcome.Check))
	const indent = "           "
	for i := range outcome.Findings {
		finding := &outcome.Findings[i]
		p.lines(strings.TrimSuffix(fmt.Sprintf("%s: %s", finding.Title, strings.TrimPrefix(finding.Cause, "not known: ")), ": "), indent)
		// Print a repeated fix only once.
		if next := i + 1; finding.Fix != "" && (next == len(outcome.Findings) || outcome.Findings[next].Fix != finding.Fix) {
			p.lines("Fix: "+asTyped(p.calledAs, finding.Fix), indent)
		}
	}
}
