// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/engine/history"
)

// describe prints a record for people.
func (p *past) describe(record *history.Record) error {
	var job struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(record.Job, &job); err != nil {
		return fmt.Errorf("read the job in the record: %w", err)
	}
	spec, err := yaml.JSONToYAML(job.Spec)
	if err != nil {
		return fmt.Errorf("read the job in the record: %w", err)
	}
	aligned := printers.GetNewTabWriter(p.Out)
	for _, line := range [][2]string{
		{"Name", record.Name}, {"Kind", string(record.Kind)}, {"Namespace", record.Namespace}, {"UID", string(record.UID)},
		{"Status", pastState(&record.Summary)}, {"Reason", orDash(record.FailureReason)}, {"Message", orDash(record.Message)},
		{"Created", record.CreationTime.UTC().Format(time.RFC3339)}, {"Finished", record.FinishTime.UTC().Format(time.RFC3339)}, {"Duration", ranFor(&record.Summary)},
		{"Log", fmt.Sprintf("%d lines", record.LogLines)},
	} {
		fmt.Fprintf(aligned, "%s:\t%s\n", line[0], line[1])
	}
	if err := aligned.Flush(); err != nil {
		return err
	}
	if len(record.Events) > 0 {
		fmt.Fprintln(p.Out, "Events:")
	}
	for i := range record.Events {
		event := &record.Events[i]
		fmt.Fprintf(p.Out, "  %s  %s  %s  %s: %s\n", event.Time.UTC().Format(time.RFC3339), event.Type, event.Reason, event.Object, event.Message)
	}
	fmt.Fprintf(p.Out, "Spec:\n  %s\n", indented(string(spec), "  "))
	return nil
}

func (p *past) newCompareCommand() *cobra.Command {
	return p.subcommand("compare JOB JOB", "Compare the results and the specs of two finished jobs", cobra.ExactArgs(2), func(ctx context.Context, _ *cobra.Command, names []string) error {
		var sides [2]map[string]string
		for i, name := range names {
			_, record, err := p.find(ctx, name)
			if err == nil {
				sides[i], err = comparedFields(record)
			}
			if err != nil {
				return err
			}
		}
		table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{column("Field", 0), column("First", 0), column("Second", 0)}}
		both := maps.Clone(sides[0])
		maps.Copy(both, sides[1])
		for _, field := range slices.Sorted(maps.Keys(both)) {
			if sides[0][field] != sides[1][field] {
				table.Rows = append(table.Rows, metav1.TableRow{
					Cells: []any{field, orDash(sides[0][field]), orDash(sides[1][field])}, Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{}},
				})
			}
		}
		if len(table.Rows) == 0 {
			fmt.Fprintln(p.Out, "This is the same job.")
			return nil
		}
		return p.printTable(table)
	})
}

// comparedFields returns what is compared of a record: its result, the last value of each
// metric, and each field of the spec.
func comparedFields(record *history.Record) (map[string]string, error) {
	fields := map[string]string{
		"name": record.Name, "uid": string(record.UID), "kind": string(record.Kind), "status": pastState(&record.Summary), "reason": record.FailureReason, "duration": ranFor(&record.Summary),
	}
	for _, curve := range record.Curves {
		if last := len(curve.Points) - 1; last >= 0 {
			fields["metrics."+curve.Name] = strconv.FormatFloat(curve.Points[last].Value, 'g', 6, 64)
		}
	}
	var job struct {
		Spec any `json:"spec"`
	}
	if err := json.Unmarshal(record.Job, &job); err != nil {
		return nil, fmt.Errorf("read the job in the record: %w", err)
	}
	flatten(fields, "spec", job.Spec)
	return fields, nil
}

// flatten adds the fields of a JSON value by their path.
func flatten(fields map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, one := range value {
			flatten(fields, path+"."+name, one)
		}
	case []any:
		for i, one := range value {
			flatten(fields, fmt.Sprintf("%s[%d]", path, i), one)
		}
	default:
		fields[path] = fmt.Sprint(value)
	}
}
