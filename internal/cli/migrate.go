// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/migrate"
)

// migrator is `odh migrate`.
type migrator struct {
	*environment
	fromCluster  bool
	all          bool
	output       string
	reportFile   string
	reportFormat string
	scheduler    string
	check        bool
}

func newMigrateCommand(env *environment) *cobra.Command {
	m := &migrator{environment: env}
	command := &cobra.Command{
		Use:   "migrate FILE | - | --from-cluster [NAME...]",
		Short: "Convert MPIJobs to TrainJobs",
		Long: `Convert MPIJobs of kubeflow.org/v2beta1, for Trireme or mpi-operator, to TrainJobs. If a
TrainJob alone is not enough, a TrainingRuntime is generated too. Nothing is created.

The objects are written to standard output. The report on standard error lists where each
field was mapped to, and why. Objects that are not MPIJobs are passed through unchanged.`,
		Example: `  odh migrate job.yaml > trainjob.yaml
  odh migrate job.yaml --check --report report.txt > trainjob.yaml
  odh migrate --from-cluster resnet -n team-a
  odh migrate status -A`,
		Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := m.checkFlags(command, arguments); err != nil {
				return err
			}
			return m.run(command.Context(), arguments)
		},
		ValidArgsFunction: func(command *cobra.Command, names []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if !m.fromCluster {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return env.completeNames(mpiJobs, many)(command, names, prefix)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&m.fromCluster, "from-cluster", false, "Read MPIJobs from the cluster: the named ones, or all of the namespace")
	flags.BoolVarP(&m.all, "all-namespaces", "A", false, "With --from-cluster, read the MPIJobs of all namespaces")
	flags.StringVarP(&m.output, "output", "o", "yaml", "Output format of the objects: yaml or json")
	flags.StringVar(&m.reportFile, "report", "", "Write the report to this file instead of standard error")
	flags.StringVar(&m.reportFormat, "report-format", "text", "Format of the report: text or json")
	flags.BoolVar(&m.check, "check", false, "Exit with code 1 if a field needs review")
	addSchedulerFlag(command, &m.scheduler)
	command.AddCommand(newMigrateStatusCommand(env))
	return command
}

// schedulers are the gang schedulers that a runtime can set.
var schedulers = func() (names []string) {
	for _, name := range gang.Names() {
		names = append(names, string(name))
	}
	return names
}()

func addSchedulerFlag(command *cobra.Command, scheduler *string) {
	command.Flags().StringVar(scheduler, "scheduler", "", "Gang scheduler of the cluster, which determines how to convert the scheduling timeout: "+strings.Join(schedulers, ", "))
}

func (m *migrator) checkFlags(command *cobra.Command, arguments []string) error {
	for _, flag := range []struct {
		name, value string
		known       []string
	}{
		{"output", m.output, []string{"yaml", "json"}}, {"report-format", m.reportFormat, []string{"text", "json"}}, {"scheduler", m.scheduler, append([]string{""}, schedulers...)},
	} {
		if !slices.Contains(flag.known, flag.value) {
			return usageFailure(command, fmt.Sprintf("--%s must be one of %s, not %q", flag.name, strings.TrimPrefix(strings.Join(flag.known, ", "), ", "), flag.value))
		}
	}
	switch {
	case !m.fromCluster && len(arguments) != 1:
		return usageFailure(command, fmt.Sprintf("specify one file, - for standard input, or --from-cluster; got %d files", len(arguments)))
	case !m.fromCluster && m.all:
		return usageFailure(command, "--all-namespaces requires --from-cluster")
	case m.all && len(arguments) > 0:
		return usageFailure(command, "--all-namespaces cannot be combined with job names")
	}
	return nil
}

func (m *migrator) run(ctx context.Context, arguments []string) error {
	options := migrate.Options{Scheduler: job.Scheduler(m.scheduler)}
	var objects []migrate.Object
	var err error
	if m.fromCluster {
		objects, err = m.clusterJobs(ctx, m.all, arguments, &options)
	} else {
		objects, err = m.fileObjects(arguments[0])
	}
	if err != nil {
		return err
	}
	outputs, report, err := convertAll(objects, options)
	if err != nil {
		return err
	}
	text, err := m.reportText(report)
	if err != nil {
		return err
	}
	if err := m.writeReport(text); err != nil {
		return err
	}
	if err := m.printObjects(outputs); err != nil {
		return err
	}
	if m.reportFile == "" {
		if _, err := m.ErrOut.Write(text); err != nil {
			return err
		}
	}
	if m.check && report.needsReview() {
		return exit(exitError)
	}
	return nil
}

// migrations is the report for a file or a cluster.
type migrations struct {
	Jobs []*migrate.Report `json:"jobs"`
	// PassedOn are the objects that are not MPIJobs.
	PassedOn []string `json:"passedOn,omitempty"`
}

func (m *migrations) needsReview() bool {
	return slices.ContainsFunc(m.Jobs, (*migrate.Report).NeedsReview)
}

// convertAll converts every MPIJob and passes other objects through, in the same order.
func convertAll(objects []migrate.Object, options migrate.Options) (outputs []map[string]any, report *migrations, err error) {
	report = &migrations{}
	if options.Existing == nil {
		options.Existing = &migrate.Existing{}
	}
	for _, object := range objects {
		if !object.IsMPIJob() {
			outputs, report.PassedOn = append(outputs, object), append(report.PassedOn, object.Named())
			continue
		}
		result, err := migrate.Convert(object, options)
		if err != nil {
			return nil, nil, &failure{code: exitError, message: "an MPIJob cannot be converted", reason: "InvalidInput", details: []string{err.Error()},
				suggestions: []string{"Fix it, or remove it from the input, and retry. Nothing was converted."}, page: "migration.md"}
		}
		converted, err := result.Objects()
		if err != nil {
			return nil, nil, err
		}
		outputs, report.Jobs = append(outputs, converted...), append(report.Jobs, result.Report)
		if result.Runtime != nil {
			options.Existing.Add(result.Runtime)
		}
	}
	return outputs, report, nil
}

// printObjects prints YAML documents or a JSON list, as kubectl accepts them.
func (m *migrator) printObjects(objects []map[string]any) error {
	if m.output == "json" {
		var value any = map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
		if len(objects) == 1 {
			value = objects[0]
		}
		return m.printDocument(value, "json")
	}
	for i, object := range objects {
		content, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if i > 0 {
			content = append([]byte("---\n"), content...)
		}
		if _, err := m.Out.Write(content); err != nil {
			return err
		}
	}
	return nil
}

func (m *migrator) reportText(report *migrations) ([]byte, error) {
	switch {
	case m.reportFormat == "json":
		return indentedJSON(report)
	case m.reportFile != "":
		return []byte(terminal{}.migrationReport(report)), nil
	default:
		return []byte(m.terminal.migrationReport(report)), nil
	}
}

// writeReport writes the report to its file. It runs before the objects are printed, so
// that there are no objects without the report.
func (m *migrator) writeReport(text []byte) error {
	if m.reportFile == "" {
		return nil
	}
	if err := os.WriteFile(m.reportFile, text, 0o644); err != nil {
		return &failure{code: exitError, message: "cannot write the report to " + m.reportFile, reason: "InvalidInput", details: []string{plainError(err)},
			suggestions: []string{"Choose another file with --report."}, page: "migration.md"}
	}
	return nil
}
