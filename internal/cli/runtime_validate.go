// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/internal/kube/runtimecheck"
)

// judgedRuntime is a document with its errors and warnings.
type judgedRuntime struct {
	File string `json:"file"`
	Line int    `json:"line"`
	runtimecheck.Findings
}

func newRuntimeValidateCommand(env *environment) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use: "validate FILE...", Short: "Check runtimes in files, without a cluster",
		Long: `Check the TrainingRuntimes and ClusterTrainingRuntimes in files as the cluster would, and warn of likely
mistakes. A file may contain several. No cluster is needed: the limits are the defaults of the operator.

The exit code is 0 if there are no errors, and 1 otherwise. Warnings do not count.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, files []string) error {
			if err := checkDocumentOutput(command, output); err != nil {
				return err
			}
			judged := []judgedRuntime{}
			for _, file := range files {
				content, err := env.readFile(file)
				if err != nil {
					return err
				}
				judged = append(judged, judgeFile(fileName(file), content)...)
			}
			if output != "" {
				if err := env.printDocument(judged, output); err != nil {
					return err
				}
			} else {
				env.showJudged(judged)
			}
			if slices.ContainsFunc(judged, func(each judgedRuntime) bool { return len(each.Errors) > 0 }) {
				return exit(exitError)
			}
			return nil
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml")
	return command
}

// judgeFile checks every document of a file.
func judgeFile(file string, content []byte) (judged []judgedRuntime) {
	for _, part := range numbered(string(content)) {
		docs, err := documents([]byte(part.text), file)
		if err != nil {
			judged = append(judged, judgedRuntime{File: file, Line: part.line, Findings: onlyFault(part.notYAML(err))})
			continue
		}
		for _, document := range docs {
			each := judgedRuntime{File: file, Line: part.line, Findings: runtimecheck.Document(document)}
			each.findLines(part)
			judged = append(judged, each)
		}
	}
	if len(judged) == 0 {
		judged = append(judged, judgedRuntime{File: file, Line: 1, Findings: onlyFault(runtimecheck.Fault{Message: "contains no runtime"})})
	}
	return judged
}

func onlyFault(fault runtimecheck.Fault) runtimecheck.Findings {
	return runtimecheck.Findings{Errors: []runtimecheck.Fault{fault}, Warnings: []runtimecheck.Fault{}}
}

// yamlLine matches the line number in errors of the YAML parser.
var yamlLine = regexp.MustCompile(`^line (\d+): `)

// notYAML returns the fault of a document that is not YAML.
func (p *filePart) notYAML(err error) runtimecheck.Fault {
	words := strings.Join(explain(err, "").details, "; ")
	fault := runtimecheck.Fault{Line: p.line, Message: "is not YAML: " + yamlLine.ReplaceAllString(words, "")}
	if match := yamlLine.FindStringSubmatch(words); match != nil {
		number, _ := strconv.Atoi(match[1])
		fault.Line += number - 1
	}
	return fault
}

// findLines sets the line of each fault.
func (each *judgedRuntime) findLines(part filePart) {
	for _, faults := range [][]runtimecheck.Fault{each.Errors, each.Warnings} {
		for i := range faults {
			if faults[i].Field != "" {
				faults[i].Line = part.lineOf(faults[i].Field)
			}
		}
	}
}

func (e *environment) showJudged(judged []judgedRuntime) {
	errors, warnings := 0, 0
	for _, each := range judged {
		what := strings.TrimSpace(each.Kind + " " + each.Name)
		if what == "" {
			what = "document"
		}
		result := e.terminal.paint(green, "ok")
		if len(each.Errors) > 0 {
			result = e.terminal.paint(red, "invalid")
		}
		fmt.Fprintf(e.Out, "%s:%d: %s: %s\n", each.File, each.Line, what, result)
		e.showFaults("error", red, each.Errors)
		e.showFaults("warning", yellow, each.Warnings)
		errors, warnings = errors+len(each.Errors), warnings+len(each.Warnings)
	}
	fmt.Fprintf(e.Out, "%s, %s in %s\n", counted(errors, "error"), counted(warnings, "warning"), counted(len(judged), "document"))
}

func (e *environment) showFaults(word string, c colour, faults []runtimecheck.Fault) {
	for _, fault := range faults {
		text := strings.TrimPrefix(fault.Field+": "+fault.Message, ": ")
		if fault.Line > 0 {
			text = fmt.Sprintf("line %d: %s", fault.Line, text)
		}
		lines := e.terminal.wrap(text, 4+len(word))
		fmt.Fprintf(e.Out, "  %s: %s\n", e.terminal.paint(c, word), strings.Join(lines, "\n    "))
	}
}

func counted(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}
