// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trireme-mpi/trireme/internal/engine/accounting"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// report is `report`.
type report struct {
	*environment
	lister *lister

	all                     bool
	selector, kind, output  string
	since, fromText, toText string
	by                      []string
	keys                    []accounting.Key
	from, to                time.Time
	lines                   []accounting.Line
	total                   accounting.Line
	withoutRuntime          int
}

// newReportCommand shows GPU-hours and CPU-hours by namespace, user and queue.
func newReportCommand(env *environment) *cobra.Command {
	r := &report{environment: env}
	command := &cobra.Command{
		Use:   "report",
		Short: "Show the GPU-hours and CPU-hours of namespaces, users and queues",
		Long: `Show the GPU-hours and CPU-hours of namespaces, users and queues in a range of time.

The hours are the GPUs or CPUs that jobs request, times the time that the jobs
  waited  for a queue, for quota or for nodes,
  idled   with nodes, before their ranks started: images were pulled, pods started,
  used    them, since their ranks started.
REQUESTED is the sum of these. FAILED is the part of USED that belongs to jobs that failed.

The report reads the jobs that exist. Jobs that were deleted are not in it, and
after a suspension a job counts as waiting since it was submitted. Jobs that a user has
suspended do not count while they are suspended.`,
		Example: `  odh report
  odh report -A --by namespace,queue --since 30d
  odh report -A --from 2026-10-01 --to 2026-11-01 -o csv > october.csv`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := r.complete(command); err != nil {
				return err
			}
			return r.run(command.Context())
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&r.all, "all-namespaces", "A", false, "Include jobs in all namespaces")
	flags.StringVarP(&r.selector, "selector", "l", "", "Only include jobs with these labels, such as team=vision,env!=test")
	flags.StringVar(&r.kind, "kind", "", "Only include jobs of this kind: trainjob or mpijob")
	flags.StringSliceVar(&r.by, "by", []string{"namespace", "user", "queue"}, "What the lines are grouped by: namespace, user, queue")
	flags.StringVar(&r.since, "since", "7d", "Length of the range before its end, such as 12h or 30d")
	flags.StringVar(&r.fromText, "from", "", "Start of the range, such as 2026-10-01 or 2026-10-01T08:00:00Z, instead of --since")
	flags.StringVar(&r.toText, "to", "", "End of the range; default: now")
	flags.StringVarP(&r.output, "output", "o", "", "Output format: csv, json or yaml")
	return command
}

func (r *report) complete(command *cobra.Command) (err error) {
	if !slices.Contains([]string{"", "csv", "json", "yaml"}, r.output) {
		return usageFailure(command, fmt.Sprintf("--output must be csv, json or yaml, not %q", r.output))
	}
	for _, name := range r.by {
		if !slices.Contains(accounting.Keys, accounting.Key(name)) {
			return usageFailure(command, fmt.Sprintf("--by must be a list of namespace, user and queue, not %q", name))
		}
		r.keys = append(r.keys, accounting.Key(name))
	}
	if err := r.completeRange(command); err != nil {
		return err
	}
	r.lister = &lister{environment: r.environment, kinds: kinds, pageSize: 500}
	if r.kind != "" {
		only, err := kindNamed(r.kind)
		if err != nil {
			return err
		}
		r.lister.kinds = []*kind{only}
	}
	if r.lister.matching, err = labels.Parse(r.selector); err != nil {
		return usageFailure(command, fmt.Sprintf("--selector: %v", err))
	}
	if r.lister.namespace, err = r.scope(r.all); err != nil {
		return err
	}
	r.lister.client, err = r.client()
	return err
}

// completeRange sets the range of time from the flags.
func (r *report) completeRange(command *cobra.Command) (err error) {
	r.to = r.clock.Now().UTC()
	if r.toText != "" {
		if r.to, err = instant(r.toText); err != nil {
			return usageFailure(command, "--to "+err.Error())
		}
	}
	length, err := days(r.since)
	if err != nil {
		return usageFailure(command, "--since "+err.Error())
	}
	r.from = r.to.Add(-length)
	if r.fromText != "" {
		if command.Flags().Changed("since") {
			return usageFailure(command, "--since and --from cannot be combined")
		}
		if r.from, err = instant(r.fromText); err != nil {
			return usageFailure(command, "--from "+err.Error())
		}
	}
	if !r.from.Before(r.to) {
		return usageFailure(command, fmt.Sprintf("--from must be before --to: the range would start at %s and end at %s", r.from.Format(time.RFC3339), r.to.Format(time.RFC3339)))
	}
	return nil
}

// instant reads a date, which starts at midnight UTC, or a time.
func instant(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("must be a date such as 2026-10-01 or a time such as 2026-10-01T08:00:00Z, not %q", text)
}

// days reads a duration that may be in days: 30d.
func days(text string) (length time.Duration, err error) {
	if number, isDays := strings.CutSuffix(text, "d"); isDays {
		var count int
		count, err = strconv.Atoi(number)
		length = time.Duration(count) * 24 * time.Hour
	} else {
		length, err = time.ParseDuration(text)
	}
	if err != nil || length <= 0 {
		return 0, fmt.Errorf("must be a positive duration such as 12h or 30d, not %q", text)
	}
	return length, nil
}

func (r *report) run(ctx context.Context) error {
	views, _, err := r.lister.read(ctx)
	if err != nil {
		return err
	}
	var jobs []accounting.Job
	models := jobview.NewRuntimeCache(r.lister.client)
	for _, j := range views {
		if j.OfMPIOperator {
			continue // Its status has no times.
		}
		model, err := j.Model(ctx, models)
		if errors.Is(err, jobview.ErrNoRuntime) {
			r.withoutRuntime++
			continue
		}
		if err != nil {
			return err
		}
		jobs = append(jobs, j.Account(model, r.clock.Now()))
	}
	if r.withoutRuntime > 0 {
		r.say("Warning: %s not included, because the runtime was deleted and the requests are unknown", areJobs(r.withoutRuntime))
	}
	r.lines, r.total = accounting.Report(jobs, r.from, r.to, r.keys)
	return r.print()
}

func areJobs(number int) string {
	if number == 1 {
		return "1 job is"
	}
	return fmt.Sprintf("%d jobs are", number)
}
