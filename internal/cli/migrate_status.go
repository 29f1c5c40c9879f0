package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/migrate"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// migrationNeed is what the migration of a job takes.
type migrationNeed string

const (
	// needNothing: a TrainJob says it all, with a runtime that is there.
	needNothing migrationNeed = "ready"
	// needRuntime: a TrainingRuntime is made too.
	needRuntime migrationNeed = "runtime"
	// needPerson: somebody must look.
	needPerson migrationNeed = "person"
)

// words of a need, as the table has them, and their colours.
var migrationNeeds = map[migrationNeed]struct {
	words  string
	colour colour
}{
	needNothing: {"ready", green}, needRuntime: {"moves to a runtime", cyan}, needPerson: {"needs a person", yellow},
}

// migrationStatus is what `odh migrate status` tells of one MPIJob.
type migrationStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State that the MPIJob is in.
	State string        `json:"state"`
	Needs migrationNeed `json:"needs"`
	// Runtime that the TrainJob would name.
	Runtime string                  `json:"runtime,omitempty"`
	Reasons []migrationStatusReason `json:"reasons,omitempty"`
}

// migrationStatusReason is why a job needs what it needs.
type migrationStatusReason struct {
	Path string `json:"path,omitempty"`
	Why  string `json:"why,omitempty"`
}

func newMigrateStatusCommand(environment *environment) *cobra.Command {
	var all bool
	var output, scheduler string
	command := &cobra.Command{
		Use:   "status",
		Short: "Show what the migration of each MPIJob would take",
		Long: `Show what the migration of each MPIJob of the namespace, or of all, would take:

  ready               a TrainJob says it all, with a runtime that is there
  moves to a runtime  a TrainingRuntime is made too
  needs a person      somebody must look at the fields that are named

With -o wide it is said why.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			switch output {
			case "", "wide", "json", "yaml":
			default:
				return usageFailure(command, fmt.Sprintf("--output %q: there are wide, json and yaml", output))
			}
			if scheduler != "" && !slices.Contains(schedulers, scheduler) {
				return usageFailure(command, fmt.Sprintf("--scheduler %q: there are %s", scheduler, strings.Join(schedulers, ", ")))
			}
			jobs, err := environment.migrationStatuses(command.Context(), all, migrate.Options{Scheduler: job.Scheduler(scheduler)})
			if err != nil {
				return err
			}
			if output == "json" || output == "yaml" {
				return environment.printDocument(map[string]any{"jobs": jobs}, output)
			}
			return environment.printMigrationStatus(jobs, all, output == "wide")
		},
	}
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "MPIJobs of every namespace")
	command.Flags().StringVarP(&output, "output", "o", "", "wide, json or yaml")
	addSchedulerFlag(command, &scheduler)
	return command
}

func (environment *environment) migrationStatuses(ctx context.Context, all bool, options migrate.Options) ([]migrationStatus, error) {
	objects, err := environment.clusterJobs(ctx, all, nil, &options)
	if err != nil {
		return nil, err
	}
	statuses := []migrationStatus{}
	for _, object := range objects {
		statuses = append(statuses, migrationStatusOf(object, options))
	}
	return statuses, nil
}

func migrationStatusOf(object migrate.Object, options migrate.Options) migrationStatus {
	var read v2beta1.MPIJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &read); err != nil {
		return migrationStatus{Name: object.Named(), State: "-", Needs: needPerson, Reasons: []migrationStatusReason{{Why: err.Error()}}}
	}
	status := migrationStatus{Namespace: read.Namespace, Name: read.Name, State: jobview.Of(&read).State(), Needs: needNothing}
	result, err := migrate.Convert(object, options)
	if err != nil {
		status.Needs, status.Reasons = needPerson, []migrationStatusReason{{Why: err.Error()}}
		return status
	}
	status.Runtime = result.Report.Runtime
	why := migrate.Moved
	if result.Runtime != nil {
		status.Needs = needRuntime
	}
	if result.Report.NeedsPerson() {
		status.Needs, why = needPerson, migrate.Look
	}
	if status.Needs == needNothing {
		return status
	}
	for _, entry := range result.Report.Of(why) {
		path := entry.Path
		if path == "" {
			path = entry.To
		}
		status.Reasons = append(status.Reasons, migrationStatusReason{Path: path, Why: entry.Why})
	}
	return status
}

// printMigrationStatus prints a table, and below each job why.
func (environment *environment) printMigrationStatus(jobs []migrationStatus, all, explain bool) error {
	if len(jobs) == 0 {
		environment.say("No MPIJobs found.")
		return nil
	}
	rows := [][]string{{"NAME", "STATUS", "NEEDS", "FIELDS"}}
	for _, job := range jobs {
		rows = append(rows, []string{job.Name, job.State, migrationNeeds[job.Needs].words, fmt.Sprint(len(job.Reasons))})
	}
	if all {
		for i := range rows {
			namespace := "NAMESPACE"
			if i > 0 {
				namespace = jobs[i-1].Namespace
			}
			rows[i] = append([]string{namespace}, rows[i]...)
		}
	}
	lines := aligned(rows)
	var text strings.Builder
	fmt.Fprintln(&text, environment.terminal.paint(bold, lines[0]))
	for i, job := range jobs {
		fmt.Fprintln(&text, environment.terminal.paint(migrationNeeds[job.Needs].colour, lines[i+1]))
		environment.terminal.writeReasons(&text, job, explain)
	}
	_, err := environment.Out.Write([]byte(text.String()))
	environment.say("%s", migrationSummary(jobs))
	return err
}

// writeReasons names the fields; explained, it says what about them.
func (terminal terminal) writeReasons(text *strings.Builder, job migrationStatus, explain bool) {
	const indent, deeper = "    ", "        "
	if !explain {
		var paths []string
		for _, reason := range job.Reasons {
			// Of an MPIJob, nearly everything is there.
			path := strings.TrimPrefix(strings.TrimPrefix(reason.Path, "spec."), "mpiReplicaSpecs.")
			if path == "" {
				path = reason.Why
			}
			paths = append(paths, path)
		}
		if job.Needs == needPerson {
			for _, line := range terminal.wrap(strings.Join(paths, ", "), len(indent)) {
				fmt.Fprintf(text, "%s%s\n", indent, line)
			}
		}
		return
	}
	for _, reason := range job.Reasons {
		if reason.Path != "" {
			fmt.Fprintf(text, "%s%s\n", indent, reason.Path)
		}
		if reason.Why != "" {
			for _, line := range terminal.wrap(reason.Why, len(deeper)) {
				fmt.Fprintf(text, "%s%s\n", deeper, line)
			}
		}
	}
}

// aligned are rows with columns of one width.
func aligned(rows [][]string) []string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 8, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	table.Flush()
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}

func migrationSummary(jobs []migrationStatus) string {
	count := map[migrationNeed]int{}
	for _, job := range jobs {
		count[job.Needs]++
	}
	return fmt.Sprintf("MPIJobs: %d. Ready: %d, moves to a runtime: %d, needs a person: %d.", len(jobs), count[needNothing], count[needRuntime], count[needPerson])
}
