// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/trireme-mpi/trireme/internal/engine/history"
)

// past is `history`.
type past struct {
	*environment
	connector serverConnector
	client    *serverClient
	namespace string

	output string
	limit  int
	rank   int
}

// newHistoryCommand shows jobs that have finished, also after they were deleted.
func newHistoryCommand(env *environment) *cobra.Command {
	p := &past{environment: env, connector: serverConnector{environment: env}}
	command := group(&cobra.Command{
		Use:   "history",
		Short: "Show finished jobs and their logs, also after they were deleted",
		Long: `Show finished jobs and their logs, also after they were deleted.

Trireme's server has the records, if a cluster administrator has enabled the history.
--trireme-server or the variable ` + serverVariable + ` has its address. odh sends it the token of your
kubeconfig; if that has none, pass one with --token.

A job is named by its name, KIND/NAME, or its UID. Of several jobs with the name, the
newest is shown.`,
		Example: `  export ` + serverVariable + `=https://trireme.example.com
  odh history list
  odh history logs bert --rank 3
  odh history compare bert-lr1 bert-lr2`,
	})
	p.connector.addFlags(command.PersistentFlags())
	command.AddCommand(p.newListCommand(), p.newShowCommand(), p.newLogsCommand(), p.newCompareCommand(), p.newDeleteCommand())
	return command
}

// subcommand returns a command that connects to the server first.
func (p *past) subcommand(use, short string, arguments cobra.PositionalArgs, do func(ctx context.Context, command *cobra.Command, names []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: arguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, names []string) (err error) {
			if p.namespace, err = p.environment.namespace(); err != nil {
				return err
			}
			if p.client, err = p.connector.connect(command); err != nil {
				return err
			}
			return do(command.Context(), command, names)
		},
	}
}

func (p *past) newListCommand() *cobra.Command {
	command := p.subcommand("list", "List finished jobs, the newest first", cobra.NoArgs, func(ctx context.Context, command *cobra.Command, _ []string) error {
		if p.limit < 1 || p.limit > history.MaxList {
			return usageFailure(command, fmt.Sprintf("--limit must be from 1 to %d, not %d", history.MaxList, p.limit))
		}
		return p.list(ctx, command)
	})
	command.Aliases = []string{"get"}
	command.Flags().StringVarP(&p.output, "output", "o", "", "Output format: wide or json")
	command.Flags().IntVar(&p.limit, "limit", 100, "Maximum number of jobs of each kind")
	return command
}

func (p *past) list(ctx context.Context, command *cobra.Command) error {
	var all []history.Summary
	for _, kind := range kinds {
		var list history.RecordList
		if err := p.client.read(ctx, p.path(kind, "?limit="+strconv.Itoa(p.limit)), &list); err != nil {
			return err
		}
		all = append(all, list.Items...)
	}
	all = history.NewestFirst(all)
	switch p.output {
	case "json":
		return p.printJSON(slices.Concat([]history.Summary{}, all))
	case "", "wide":
	default:
		return usageFailure(command, fmt.Sprintf("--output must be wide or json, not %q", p.output))
	}
	if len(all) == 0 {
		fmt.Fprintf(p.ErrOut, "The history has no jobs in namespace %s.\n", p.namespace)
		return nil
	}
	return p.printTable(p.table(all))
}

func (p *past) table(all []history.Summary) *metav1.Table {
	table := &metav1.Table{}
	for _, name := range []string{"Name", "Kind", "Status", "Reason", "Duration", "Finished"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 0))
	}
	table.ColumnDefinitions = append(table.ColumnDefinitions, column("UID", 1))
	for i := range all {
		one := &all[i]
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells:  []any{one.Name, string(one.Kind), pastState(one), orDash(one.FailureReason), ranFor(one), age(p.clock.Now(), one.FinishTime) + " ago", string(one.UID)},
			Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{}},
		})
	}
	return table
}

func (p *past) printTable(table *metav1.Table) error {
	aligned := printers.GetNewTabWriter(p.Out)
	if err := printers.NewTablePrinter(printers.PrintOptions{Wide: p.output == "wide"}).PrintObj(table, aligned); err != nil {
		return err
	}
	return aligned.Flush()
}

func (p *past) printJSON(content any) error {
	encoder := json.NewEncoder(p.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(content)
}

// pastState is the state of a job that may have been deleted before it finished.
func pastState(one *history.Summary) string {
	if one.Deleted {
		return "Deleted (" + one.State + ")"
	}
	return one.State
}

func ranFor(one *history.Summary) string {
	if one.StartTime == nil {
		return "-"
	}
	return duration.HumanDuration(one.FinishTime.Sub(*one.StartTime))
}

func (p *past) newShowCommand() *cobra.Command {
	command := p.subcommand("show JOB", "Show a finished job: its result, its events and its spec", cobra.ExactArgs(1), func(ctx context.Context, command *cobra.Command, names []string) error {
		if p.output != "" && p.output != "json" {
			return usageFailure(command, fmt.Sprintf("--output must be json, not %q", p.output))
		}
		_, record, err := p.find(ctx, names[0])
		if err != nil {
			return err
		}
		if p.output == "json" {
			return p.printJSON(record)
		}
		return p.describe(record)
	})
	command.Flags().StringVarP(&p.output, "output", "o", "", "Output format: json, which also has the metrics over time")
	return command
}

func (p *past) newLogsCommand() *cobra.Command {
	command := p.subcommand("logs JOB", "Print the log of a finished job, with the lines of all its ranks", cobra.ExactArgs(1), func(ctx context.Context, command *cobra.Command, names []string) error {
		ranked := command.Flags().Changed("rank")
		if ranked && p.rank < 0 {
			return usageFailure(command, fmt.Sprintf("--rank must be 0 or greater, not %d", p.rank))
		}
		kind, record, err := p.find(ctx, names[0])
		if err != nil {
			return err
		}
		query := ""
		if ranked {
			query = "?rank=" + strconv.Itoa(p.rank)
		}
		return p.printLog(ctx, p.path(kind, "/"+string(record.UID)+"/logs"+query), record)
	})
	command.Flags().IntVar(&p.rank, "rank", 0, "Only show the lines of this MPI rank; the output must be tagged")
	return command
}

// printLog prints a log, and says on stderr what is missing of it.
func (p *past) printLog(ctx context.Context, path string, record *history.Record) error {
	body, err := p.client.open(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if record.OmittedLines > 0 {
		fmt.Fprintf(p.ErrOut, "The first %d lines are not in the history, which keeps the newest lines of each job.\n", record.OmittedLines)
	}
	printed, err := io.Copy(p.logs(), body)
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	switch {
	case record.LogError != "":
		fmt.Fprintf(p.ErrOut, "Lines may be missing: %s\n", record.LogError)
	case printed == 0 && record.LogLines > 0:
		fmt.Fprintf(p.ErrOut, "None of the %d lines is of this rank. Lines have a rank if the job tags its output.\n", record.LogLines)
	}
	return nil
}

func (p *past) newDeleteCommand() *cobra.Command {
	return p.subcommand("delete JOB", "Delete a finished job and its log from the history", cobra.ExactArgs(1), func(ctx context.Context, _ *cobra.Command, names []string) error {
		kind, record, err := p.find(ctx, names[0])
		if err != nil {
			return err
		}
		body, err := p.client.open(ctx, http.MethodDelete, p.path(kind, "/"+string(record.UID)))
		if err != nil {
			return err
		}
		fmt.Fprintf(p.Out, "%s/%s (UID %s) deleted from the history\n", kind.Command, record.Name, record.UID)
		return body.Close()
	})
}

// path is a path of the server for a kind of jobs.
func (p *past) path(kind *kind, rest string) string {
	return "/api/v1/namespaces/" + p.namespace + "/history/" + kind.Plural + rest
}

// find reads the record of a job that the user has named. Without a kind, the newest of both
// kinds is found.
func (p *past) find(ctx context.Context, name string) (*kind, *history.Record, error) {
	only, rest, named := strings.Cut(name, "/")
	if named {
		name = rest
	}
	var found *kind
	var newest *history.Record
	var missing error
	for _, kind := range kinds {
		if named && only != kind.Command && !slices.Contains(kind.Aliases, only) {
			continue
		}
		var record history.Record
		err := p.client.read(ctx, p.path(kind, "/"+name), &record)
		if isMissing(err) {
			missing = err
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if newest == nil || record.FinishTime.After(newest.FinishTime) {
			found, newest = kind, &record
		}
	}
	switch {
	case newest != nil:
		return found, newest, nil
	case missing == nil:
		return nil, nil, &failure{code: exitUsage, message: fmt.Sprintf("%q is not a kind of job", only), reason: "Usage", suggestions: []string{"Use trainjob/NAME or mpijob/NAME"}}
	}
	return nil, nil, &failure{code: exitNotFound, message: fmt.Sprintf("the history has no job %s in namespace %s", name, p.namespace), reason: "NotFound",
		page: "cli.md#history", suggestions: []string{"List its jobs: " + p.calledAs + " history list"}}
}
