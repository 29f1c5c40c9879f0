// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// results are everything that was measured, in seconds.
type results struct {
	Settings   settings    `json:"settings"`
	LoadBefore string      `json:"loadBefore"`
	LoadAfter  string      `json:"loadAfter"`
	Hosts      hostResults `json:"hosts"`
	Pods       podResults  `json:"pods"`
	// Goals are filled in when the tables are printed.
	Goals []goal `json:"goals"`
}

type hostResults struct {
	Connect []row  `json:"connect"`
	Whole   []row  `json:"whole"`
	Error   string `json:"error,omitempty"`
}

// row is one number of workers.
type row struct {
	Workers int                  `json:"workers"`
	Samples map[string][]float64 `json:"samples"`
	// Started is when the last rank had started, where there are ranks.
	Started map[string][]float64 `json:"started"`
	Error   string               `json:"error,omitempty"`
}

// goal is what a ratio should be at most.
type goal struct {
	What    string  `json:"what"`
	Ratio   float64 `json:"ratio"`
	AtMost  float64 `json:"atMost"`
	Reached bool    `json:"reached"`
}

const (
	connectGoal = 0.25
	podGoal     = 1.10
)

// wholeGoals are by number of workers.
var wholeGoals = map[int]float64{4: 1.0, 64: 0.8}

func (results *results) print(to io.Writer) {
	fmt.Fprintf(to, "\nLoad average (1, 5, 15 min) before: %s; after: %s. Median [min..max] in seconds of %d repetitions.\n",
		results.LoadBefore, results.LoadAfter, results.Settings.Repetitions)
	if len(results.Hosts.Connect) > 0 {
		results.printPart(to, "Connect phase: the gate and one login a host, against one login a host", results.Hosts.Connect,
			[]string{openSSH, openSSHQuick}, func(other string, _ int) float64 { return map[string]float64{openSSH: connectGoal}[other] })
	}
	if len(results.Hosts.Whole) > 0 {
		results.printPart(to, "From servers up to all ranks past MPI_Init: the agent's launch, against mpirun over ssh, flat and as shipped", results.Hosts.Whole,
			[]string{openSSH, openSSHTree}, func(_ string, workers int) float64 { return wholeGoals[workers] })
		results.printPart(to, "Of it, until the program of the last rank has started: the rest is MPI's own", started(results.Hosts.Whole),
			[]string{openSSH, openSSHTree}, func(string, int) float64 { return 0 })
	}
	if results.Hosts.Error != "" {
		fmt.Fprintf(to, "\nNot all was measured: %s\n", results.Hosts.Error)
	}
	results.printPods(to)
}

func started(rows []row) []row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Samples = rows[i].Started
	}
	return rows
}

// printPart prints a table: ours, the others, and the ratios to each of them.
func (results *results) printPart(to io.Writer, title string, rows []row, others []string, goalAt func(other string, workers int) float64) {
	fmt.Fprintf(to, "\n%s\n", title)
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintf(table, "workers\t%s\t%s", ours, strings.Join(others, "\t"))
	for _, other := range others {
		fmt.Fprintf(table, "\tto %s\tgoal", other)
	}
	fmt.Fprintln(table)
	for _, row := range rows {
		fmt.Fprintf(table, "%d\t%s", row.Workers, spread(row.Samples[ours]))
		for _, other := range others {
			fmt.Fprintf(table, "\t%s", spread(row.Samples[other]))
		}
		for _, other := range others {
			what := fmt.Sprintf("%s, %d workers, to %s", strings.Split(title, ":")[0], row.Workers, other)
			fmt.Fprintf(table, "\t%s", results.judge(what, row.Samples[ours], row.Samples[other], goalAt(other, row.Workers)))
		}
		fmt.Fprintln(table)
	}
}

// judge is the ratio and the goal, if there is one, and keeps them.
func (results *results) judge(what string, mine, other []float64, atMost float64) string {
	if len(mine) == 0 || len(other) == 0 {
		return "-\tnot measured"
	}
	ratio := median(mine) / median(other)
	if atMost == 0 {
		return fmt.Sprintf("%.2f\t", ratio)
	}
	result := goal{What: what, Ratio: ratio, AtMost: atMost, Reached: ratio <= atMost}
	results.Goals = append(results.Goals, result)
	word := "missed"
	if result.Reached {
		word = "met"
	}
	return fmt.Sprintf("%.2f\t<= %.2f %s", ratio, atMost, word)
}

func spread(samples []float64) string {
	if len(samples) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f [%.3f..%.3f]", median(samples), slices.Min(samples), slices.Max(samples))
}

func median(samples []float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func (results *results) writeJSON(path string) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
