// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/trireme-mpi/trireme/internal/engine/accounting"
)

// reportDocument is the output of -o json and -o yaml.
type reportDocument struct {
	From  time.Time         `json:"from"`
	To    time.Time         `json:"to"`
	By    []accounting.Key  `json:"by"`
	Lines []accounting.Line `json:"lines"`
	Total accounting.Line   `json:"total"`
	// NotIncluded is how many jobs are not in the report, because their runtime was deleted.
	NotIncluded int `json:"notIncluded"`
}

func (r *report) print() error {
	switch r.output {
	case "csv":
		return r.printCSV()
	case "json", "yaml":
		return r.printDocument(&reportDocument{From: r.from, To: r.to, By: r.keys, Lines: r.lines, Total: r.total, NotIncluded: r.withoutRuntime}, r.output)
	}
	fmt.Fprintf(r.Out, "From %s to %s\n\n", r.from.Format(time.RFC3339), r.to.Format(time.RFC3339))
	aligned := printers.GetNewTabWriter(r.Out)
	if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(r.table(), aligned); err != nil {
		return err
	}
	return aligned.Flush()
}

// valueOf is what a line has for a key.
func valueOf(group accounting.Group, key accounting.Key) string {
	return map[accounting.Key]string{accounting.ByNamespace: group.Namespace, accounting.ByUser: group.User, accounting.ByQueue: group.Queue}[key]
}

// table shows the hours that somebody reads first: CSV and JSON have all.
func (r *report) table() *metav1.Table {
	table := &metav1.Table{}
	for _, key := range r.keys {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(strings.ToUpper(string(key[:1]))+string(key[1:]), 0))
	}
	for _, name := range []string{"Jobs", "GPU-h-requested", "Waiting", "Idle", "Used", "Failed", "CPU-h-requested", "Waiting", "Idle", "Used", "Failed"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 0))
	}
	row := func(names []any, line *accounting.Line) {
		cells := append(names, strconv.Itoa(line.Jobs))
		for _, hours := range []accounting.Hours{line.GPUHours, line.CPUHours} {
			for _, number := range numbers(hours) {
				cells = append(cells, strconv.FormatFloat(number, 'f', 1, 64))
			}
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{}}})
	}
	for i := range r.lines {
		var names []any
		for _, key := range r.keys {
			names = append(names, orDash(valueOf(r.lines[i].Group, key)))
		}
		row(names, &r.lines[i])
	}
	total := make([]any, len(r.keys))
	for i := range total {
		total[i] = ""
	}
	if len(total) > 0 {
		total[0] = "TOTAL"
	}
	row(total, &r.total)
	return table
}

// numbers are hours in the order of the columns.
func numbers(hours accounting.Hours) []float64 {
	return []float64{hours.Requested, hours.Waiting, hours.Idle, hours.Used, hours.Failed}
}

// printCSV prints one line for each group, without the total: programs add up by
// themselves.
func (r *report) printCSV() error {
	writer := csv.NewWriter(r.Out)
	head := []string{"from", "to"}
	for _, key := range r.keys {
		head = append(head, string(key))
	}
	head = append(head, "jobs")
	for _, resource := range []string{"gpu", "cpu"} {
		for _, state := range []string{"requested", "waiting", "idle", "used", "failed"} {
			head = append(head, resource+"_hours_"+state)
		}
	}
	rows := [][]string{head}
	for i := range r.lines {
		line := &r.lines[i]
		row := []string{r.from.Format(time.RFC3339), r.to.Format(time.RFC3339)}
		for _, key := range r.keys {
			row = append(row, inert(valueOf(line.Group, key)))
		}
		row = append(row, strconv.Itoa(line.Jobs))
		for _, hours := range []accounting.Hours{line.GPUHours, line.CPUHours} {
			for _, number := range numbers(hours) {
				row = append(row, strconv.FormatFloat(number, 'f', 4, 64))
			}
		}
		rows = append(rows, row)
	}
	return writer.WriteAll(rows)
}

// inert keeps a spreadsheet from computing a name that starts like a formula.
func inert(name string) string {
	if name != "" && strings.ContainsRune("=+-@\t\r", rune(name[0])) {
		return "'" + name
	}
	return name
}
