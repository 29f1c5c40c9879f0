// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
)

// judgedRuntime is a document with its errors and warnings.
type judgedRuntime struct {
	File     string       `json:"file"`
	Line     int          `json:"line"`
	Kind     string       `json:"kind,omitempty"`
	Name     string       `json:"name,omitempty"`
	Errors   []fieldFault `json:"errors"`
	Warnings []fieldFault `json:"warnings"`
}

// fieldFault is an error or a warning about a field.
type fieldFault struct {
	Line    int    `json:"line,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
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
			judged = append(judged, judgedRuntime{File: file, Line: part.line, Warnings: []fieldFault{}, Errors: []fieldFault{part.notYAML(err)}})
			continue
		}
		for _, document := range docs {
			each := judgedRuntime{File: file, Line: part.line, Errors: []fieldFault{}, Warnings: []fieldFault{}}
			each.judge(document)
			each.findLines(part)
			judged = append(judged, each)
		}
	}
	if len(judged) == 0 {
		judged = append(judged, judgedRuntime{File: file, Line: 1, Warnings: []fieldFault{}, Errors: []fieldFault{{Message: "contains no runtime"}}})
	}
	return judged
}

// yamlLine matches the line number in errors of the YAML parser.
var yamlLine = regexp.MustCompile(`^line (\d+): `)

// notYAML returns the fault of a document that is not YAML.
func (p *filePart) notYAML(err error) fieldFault {
	words := strings.Join(explain(err, "").details, "; ")
	fault := fieldFault{Line: p.line, Message: "is not YAML: " + yamlLine.ReplaceAllString(words, "")}
	if match := yamlLine.FindStringSubmatch(words); match != nil {
		number, _ := strconv.Atoi(match[1])
		fault.Line += number - 1
	}
	return fault
}

// judge sets the errors and warnings of a document.
func (each *judgedRuntime) judge(document []byte) {
	var about struct {
		metav1.TypeMeta
		Metadata struct{ Name string }
	}
	_ = json.Unmarshal(document, &about)
	each.Kind, each.Name = about.Kind, about.Metadata.Name
	refuse := func(field, message string) {
		each.Errors = append(each.Errors, fieldFault{Field: field, Message: message})
	}
	// Both scopes have the same spec.
	runtime := &v2alpha1.TrainingRuntime{}
	isRuntime := about.Kind == string(v2alpha1.RuntimeKindNamespaced) || about.Kind == string(v2alpha1.RuntimeKindCluster)
	if !isRuntime || about.APIVersion != v2alpha1.GroupVersion.String() {
		refuse("kind", fmt.Sprintf("is %s of %s instead of TrainingRuntime or ClusterTrainingRuntime of %s", orDash(about.Kind), orDash(about.APIVersion), v2alpha1.GroupVersion))
		return
	}
	if huge, is := errors.AsType[*job.QuantityError](job.CheckQuantities(document)); is {
		refuse(huge.Field, huge.Reason())
		return
	}
	unknown, err := kjson.UnmarshalStrict(document, runtime)
	if err != nil {
		refuse("", err.Error())
		return
	}
	for _, fault := range unknown {
		refuse(unknownField(fault), "unknown field")
	}
	if runtime.Name == "" && runtime.GenerateName == "" {
		refuse("metadata.name", "Required value: a runtime must have a name")
	}
	findings := preflight.Runtime(&runtime.Spec, len(document))
	for _, fault := range findings.Errors {
		refuse(fault.Field, fault.ErrorBody())
	}
	for _, warning := range findings.Warnings {
		each.Warnings = append(each.Warnings, fieldFault{Field: warning.Field, Message: warning.Message})
	}
}

// unknownField returns the path in an error of the decoder: unknown field "spec.a".
func unknownField(fault error) string {
	if _, quoted, found := strings.Cut(fault.Error(), `"`); found {
		return strings.TrimSuffix(quoted, `"`)
	}
	return fault.Error()
}

// findLines sets the line of each fault.
func (each *judgedRuntime) findLines(part filePart) {
	for _, faults := range [][]fieldFault{each.Errors, each.Warnings} {
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

func (e *environment) showFaults(word string, c colour, faults []fieldFault) {
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
