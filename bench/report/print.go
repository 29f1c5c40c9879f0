// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Print writes the machine, a table for each group and the goals. A cell is the
// median, the lowest and highest sample, and how often the base's median goes into it.
func (report Report) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(report.Machine)) {
		fmt.Fprintf(table, "%s\t%s\n", name, report.Machine[name])
	}
	for _, group := range distinct(report.Results, func(result Result) string { return result.Group }) {
		report.printGroup(table, group)
	}
	if len(report.Goals) > 0 {
		fmt.Fprint(table, "\ngoal\tmeasured\tlimit\t\n")
	}
	for _, goal := range report.Goals {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", goal.Text, number(goal.Value), goal.limit(), goal.verdict())
	}
	return table.Flush()
}

func (goal Goal) limit() string {
	if goal.AtMost {
		return "at most " + number(goal.Limit)
	}
	return "at least " + number(goal.Limit)
}

func (goal Goal) verdict() string {
	if goal.Met {
		return "met"
	}
	return "missed"
}

// printGroup writes one table: a row for each measure of each case, a column for
// each contestant.
func (report Report) printGroup(table io.Writer, group string) {
	results := slices.DeleteFunc(slices.Clone(report.Results), func(result Result) bool { return result.Group != group })
	contestants := distinct(results, func(result Result) string { return result.Contestant })
	base := report.base(group, contestants)
	fmt.Fprintf(table, "\n%s (compared with %s)\t\t", group, base)
	for _, contestant := range contestants {
		fmt.Fprintf(table, "%s\t", contestant)
	}
	fmt.Fprintln(table)
	for _, row := range distinct(results, func(result Result) [2]string { return [2]string{result.Case, result.Measure} }) {
		report.printRow(table, group, row[0], row[1], base, contestants)
	}
	for _, result := range results {
		if result.Note != "" {
			fmt.Fprintf(table, "  note: %s, %s, %s: %s\n", result.Case, result.Contestant, result.Measure, result.Note)
		}
	}
}

func (report Report) printRow(table io.Writer, group, example, measure, base string, contestants []string) {
	compared, _ := report.Find(group, example, base, measure)
	unit := ""
	for _, contestant := range contestants {
		if result, ok := report.Find(group, example, contestant, measure); ok {
			unit = result.Unit
		}
	}
	label := measure
	if unit != "" {
		label += ", " + unit
	}
	fmt.Fprintf(table, "%s\t%s\t", example, label)
	for _, contestant := range contestants {
		result, ok := report.Find(group, example, contestant, measure)
		if !ok {
			fmt.Fprint(table, "-\t")
			continue
		}
		fmt.Fprintf(table, "%s\t", cell(result, compared.Median(), contestant == base))
	}
	fmt.Fprintln(table)
}

func cell(result Result, base float64, isBase bool) string {
	low, high := result.Spread()
	text := number(result.Median())
	if len(result.Samples) > 1 && low != high {
		text += fmt.Sprintf(" (%s..%s)", number(low), number(high))
	}
	if isBase || base == 0 {
		return text
	}
	return text + fmt.Sprintf(" %sx", number(result.Median()/base))
}

// base is the contestant that the group's report names, or else its first.
func (report Report) base(group string, contestants []string) string {
	if name, ok := report.Bases[group]; ok && slices.Contains(contestants, name) {
		return name
	}
	return contestants[0]
}

// number has three digits that count, and no exponent.
func number(value float64) string {
	if value == 0 || math.IsNaN(value) || math.IsInf(value, 0) {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(value)))))
	scale := math.Pow10(digits)
	return strconv.FormatFloat(math.Round(value*scale)/scale, 'f', -1, 64)
}

// distinct is what a function says of the results, each answer once, in the order of
// the first.
func distinct[T comparable](results []Result, of func(Result) T) []T {
	var found []T
	for _, result := range results {
		if value := of(result); !slices.Contains(found, value) {
			found = append(found, value)
		}
	}
	return found
}
