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

func newMigrateCommand(environment *environment) *cobra.Command {
	migrator := &migrator{environment: environment}
	command := &cobra.Command{
		Use:   "migrate FILE | - | --from-cluster [NAME...]",
		Short: "Turn MPIJobs into TrainJobs",
		Long: `Turn MPIJobs of kubeflow.org/v2beta1, ours or mpi-operator's, into TrainJobs and, where a
TrainJob alone cannot say it, a TrainingRuntime. Nothing is created.

The objects go to standard output. A report goes to standard error: what became of every
field, and why. What is no MPIJob is passed on as it is.`,
		Example: `  odh migrate job.yaml > trainjob.yaml
  odh migrate job.yaml --check --report report.txt > trainjob.yaml
  odh migrate --from-cluster resnet -n team-a
  odh migrate status -A`,
		Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := migrator.checkFlags(command, arguments); err != nil {
				return err
			}
			return migrator.run(command.Context(), arguments)
		},
		ValidArgsFunction: func(command *cobra.Command, names []string, begun string) ([]string, cobra.ShellCompDirective) {
			if !migrator.fromCluster {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return environment.completeNames(mpiJobs, many)(command, names, begun)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&migrator.fromCluster, "from-cluster", false, "MPIJobs of the cluster: those that are named, or all of the namespace")
	flags.BoolVarP(&migrator.all, "all-namespaces", "A", false, "with --from-cluster: MPIJobs of every namespace")
	flags.StringVarP(&migrator.output, "output", "o", "yaml", "form of the objects: yaml or json")
	flags.StringVar(&migrator.reportFile, "report", "", "write the report to this file, and not to standard error")
	flags.StringVar(&migrator.reportFormat, "report-format", "text", "form of the report: text or json")
	flags.BoolVar(&migrator.check, "check", false, "exit with 1 if a person must look at something")
	addSchedulerFlag(command, &migrator.scheduler)
	command.AddCommand(newMigrateStatusCommand(environment))
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
	command.Flags().StringVar(scheduler, "scheduler", "", "the gang scheduler of the cluster, for the time that pods may wait for their places: "+strings.Join(schedulers, ", "))
}

func (migrator *migrator) checkFlags(command *cobra.Command, arguments []string) error {
	for _, flag := range []struct {
		name, value string
		known       []string
	}{
		{"output", migrator.output, []string{"yaml", "json"}}, {"report-format", migrator.reportFormat, []string{"text", "json"}}, {"scheduler", migrator.scheduler, append([]string{""}, schedulers...)},
	} {
		if !slices.Contains(flag.known, flag.value) {
			return usageFailure(command, fmt.Sprintf("--%s %q: there are %s", flag.name, flag.value, strings.TrimPrefix(strings.Join(flag.known, ", "), ", ")))
		}
	}
	switch {
	case !migrator.fromCluster && len(arguments) != 1:
		return usageFailure(command, fmt.Sprintf("%d files are named; it takes one, - for standard input, or --from-cluster", len(arguments)))
	case !migrator.fromCluster && migrator.all:
		return usageFailure(command, "--all-namespaces has a meaning with --from-cluster only")
	case migrator.all && len(arguments) > 0:
		return usageFailure(command, "a job is named, so that --all-namespaces has no meaning")
	}
	return nil
}

func (migrator *migrator) run(ctx context.Context, arguments []string) error {
	options := migrate.Options{Scheduler: job.Scheduler(migrator.scheduler)}
	var objects []migrate.Object
	var err error
	if migrator.fromCluster {
		objects, err = migrator.clusterJobs(ctx, migrator.all, arguments, &options)
	} else {
		objects, err = migrator.fileObjects(arguments[0])
	}
	if err != nil {
		return err
	}
	made, report, err := convertAll(objects, options)
	if err != nil {
		return err
	}
	text, err := migrator.reportText(report)
	if err != nil {
		return err
	}
	if err := migrator.writeReport(text); err != nil {
		return err
	}
	if err := migrator.printObjects(made); err != nil {
		return err
	}
	if migrator.reportFile == "" {
		if _, err := migrator.ErrOut.Write(text); err != nil {
			return err
		}
	}
	if migrator.check && report.needsPerson() {
		return exit(exitError)
	}
	return nil
}

// migrations is what is reported of a file or a cluster.
type migrations struct {
	Jobs []*migrate.Report `json:"jobs"`
	// PassedOn are the objects that are no MPIJobs.
	PassedOn []string `json:"passedOn,omitempty"`
}

func (migrations *migrations) needsPerson() bool {
	return slices.ContainsFunc(migrations.Jobs, (*migrate.Report).NeedsPerson)
}

// convertAll converts every MPIJob and passes the others on, in the same order.
func convertAll(objects []migrate.Object, options migrate.Options) (made []map[string]any, report *migrations, err error) {
	report = &migrations{}
	if options.Existing == nil {
		options.Existing = &migrate.Existing{}
	}
	for _, object := range objects {
		if !object.IsMPIJob() {
			made, report.PassedOn = append(made, object), append(report.PassedOn, object.Named())
			continue
		}
		result, err := migrate.Convert(object, options)
		if err != nil {
			return nil, nil, &failure{code: exitError, message: "an MPIJob cannot be converted", reason: "InvalidInput", details: []string{err.Error()},
				suggestions: []string{"Correct it, or leave it out, and try again; nothing was converted."}, page: "migration.md"}
		}
		converted, err := result.Objects()
		if err != nil {
			return nil, nil, err
		}
		made, report.Jobs = append(made, converted...), append(report.Jobs, result.Report)
		if result.Runtime != nil {
			options.Existing.Add(result.Runtime)
		}
	}
	return made, report, nil
}

// printObjects prints what kubectl takes: documents, or one list.
func (migrator *migrator) printObjects(objects []map[string]any) error {
	if migrator.output == "json" {
		var value any = map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
		if len(objects) == 1 {
			value = objects[0]
		}
		return migrator.printDocument(value, "json")
	}
	for i, object := range objects {
		content, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if i > 0 {
			content = append([]byte("---\n"), content...)
		}
		if _, err := migrator.Out.Write(content); err != nil {
			return err
		}
	}
	return nil
}

func (migrator *migrator) reportText(report *migrations) ([]byte, error) {
	switch {
	case migrator.reportFormat == "json":
		return indentedJSON(report)
	case migrator.reportFile != "":
		return []byte(terminal{}.migrationReport(report)), nil
	default:
		return []byte(migrator.terminal.migrationReport(report)), nil
	}
}

// writeReport comes before the objects: whoever asks for a report gets nothing
// without it.
func (migrator *migrator) writeReport(text []byte) error {
	if migrator.reportFile == "" {
		return nil
	}
	if err := os.WriteFile(migrator.reportFile, text, 0o644); err != nil {
		return &failure{code: exitError, message: "the report cannot be written to " + migrator.reportFile, reason: "InvalidInput", details: []string{plainError(err)},
			suggestions: []string{"Name another file with --report."}, page: "migration.md"}
	}
	return nil
}
