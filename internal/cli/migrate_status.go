// SPDX-License-Identifier: Apache-2.0

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

// migrationNeed is what a job needs to be migrated.
type migrationNeed string

const (
	// needNothing: a TrainJob with an existing runtime is enough.
	needNothing migrationNeed = "ready"
	// needRuntime: a TrainingRuntime is generated too.
	needRuntime migrationNeed = "runtime"
	// needReview: some fields need review.
	needReview migrationNeed = "person"
)

// migrationNeeds are the needs as the table shows them.
var migrationNeeds = map[migrationNeed]struct {
	words  string
	colour colour
}{
	needNothing: {"ready", green}, needRuntime: {"new runtime", cyan}, needReview: {"review", yellow},
}

// migrationStatus is what `odh migrate status` prints for one MPIJob.
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

func newMigrateStatusCommand(env *environment) *cobra.Command {
	var all bool
	var output, scheduler string
	command := &cobra.Command{
		Use:   "status",
		Short: "Show what each MPIJob needs to be migrated",
		Long: `Show what each MPIJob of the namespace, or of all namespaces, needs to be migrated:

  ready        a TrainJob with an existing runtime is enough
  new runtime  a TrainingRuntime is generated too
  review       you must check the listed fields

Use -o wide to see the reasons.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			switch output {
			case "", "wide", "json", "yaml":
			default:
				return usageFailure(command, fmt.Sprintf("--output must be wide, json or yaml, not %q", output))
			}
			if scheduler != "" && !slices.Contains(schedulers, scheduler) {
				return usageFailure(command, fmt.Sprintf("--scheduler must be one of %s, not %q", strings.Join(schedulers, ", "), scheduler))
			}
			jobs, err := env.migrationStatuses(command.Context(), all, migrate.Options{Scheduler: job.Scheduler(scheduler)})
			if err != nil {
				return err
			}
			if output == "json" || output == "yaml" {
				return env.printDocument(map[string]any{"jobs": jobs}, output)
			}
			return env.printMigrationStatus(jobs, all, output == "wide")
		},
	}
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "Show the MPIJobs of all namespaces")
	command.Flags().StringVarP(&output, "output", "o", "", "Output format: wide, json or yaml")
	addSchedulerFlag(command, &scheduler)
	return command
}

func (e *environment) migrationStatuses(ctx context.Context, all bool, options migrate.Options) ([]migrationStatus, error) {
	objects, err := e.clusterJobs(ctx, all, nil, &options)
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
	var mpiJob v2beta1.MPIJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &mpiJob); err != nil {
		return migrationStatus{Name: object.Named(), State: "-", Needs: needReview, Reasons: []migrationStatusReason{{Why: err.Error()}}}
	}
	status := migrationStatus{Namespace: mpiJob.Namespace, Name: mpiJob.Name, State: jobview.Of(&mpiJob).State(), Needs: needNothing}
	result, err := migrate.Convert(object, options)
	if err != nil {
		status.Needs, status.Reasons = needReview, []migrationStatusReason{{Why: err.Error()}}
		return status
	}
	status.Runtime = result.Report.Runtime
	why := migrate.Moved
	if result.Runtime != nil {
		status.Needs = needRuntime
	}
	if result.Report.NeedsReview() {
		status.Needs, why = needReview, migrate.Review
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

// printMigrationStatus prints a table, with the reasons below each job.
func (e *environment) printMigrationStatus(jobs []migrationStatus, all, explain bool) error {
	if len(jobs) == 0 {
		e.say("No MPIJobs found.")
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
	fmt.Fprintln(&text, e.terminal.paint(bold, lines[0]))
	for i, job := range jobs {
		fmt.Fprintln(&text, e.terminal.paint(migrationNeeds[job.Needs].colour, lines[i+1]))
		e.terminal.writeReasons(&text, job, explain)
	}
	_, err := e.Out.Write([]byte(text.String()))
	e.say("%s", migrationSummary(jobs))
	return err
}

// writeReasons lists the fields and, if explain is set, the reason for each.
func (t terminal) writeReasons(text *strings.Builder, job migrationStatus, explain bool) {
	const indent, deeper = "    ", "        "
	if !explain {
		var paths []string
		for _, reason := range job.Reasons {
			// Nearly all fields of an MPIJob have this prefix.
			path := strings.TrimPrefix(strings.TrimPrefix(reason.Path, "spec."), "mpiReplicaSpecs.")
			if path == "" {
				path = reason.Why
			}
			paths = append(paths, path)
		}
		if job.Needs == needReview {
			for _, line := range t.wrap(strings.Join(paths, ", "), len(indent)) {
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
			for _, line := range t.wrap(reason.Why, len(deeper)) {
				fmt.Fprintf(text, "%s%s\n", deeper, line)
			}
		}
	}
}

// aligned returns rows as lines with aligned columns.
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
	return fmt.Sprintf("MPIJobs: %d. Ready: %d, new runtime: %d, review: %d.", len(jobs), count[needNothing], count[needRuntime], count[needReview])
}
