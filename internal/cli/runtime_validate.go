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

// judgedRuntime is a document and what was found in it.
type judgedRuntime struct {
	File     string       `json:"file"`
	Line     int          `json:"line"`
	Kind     string       `json:"kind,omitempty"`
	Name     string       `json:"name,omitempty"`
	Errors   []fieldFault `json:"errors"`
	Warnings []fieldFault `json:"warnings"`
}

// fieldFault is something that is wrong with a field.
type fieldFault struct {
	Line    int    `json:"line,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

func newRuntimeValidateCommand(environment *environment) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use: "validate FILE...", Short: "Check runtimes in files, without a cluster",
		Long: `Check TrainingRuntimes and ClusterTrainingRuntimes in files as the cluster would, and warn of what is
seldom meant. A file may hold several. No cluster is asked: limits are those that the operator has by
default.

The exit code is 0 if there are no errors, 1 if there are; warnings do not count.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, files []string) error {
			if err := isDocument(command, output); err != nil {
				return err
			}
			judged := []judgedRuntime{}
			for _, file := range files {
				content, err := environment.readFile(file)
				if err != nil {
					return err
				}
				judged = append(judged, judgeFile(fileName(file), content)...)
			}
			if output != "" {
				if err := environment.printDocument(judged, output); err != nil {
					return err
				}
			} else {
				environment.showJudged(judged)
			}
			if slices.ContainsFunc(judged, func(each judgedRuntime) bool { return len(each.Errors) > 0 }) {
				return exit(exitError)
			}
			return nil
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return command
}

// judgeFile judges every document of a file.
func judgeFile(file string, content []byte) (judged []judgedRuntime) {
	for _, part := range numbered(string(content)) {
		found, err := documents([]byte(part.text), file)
		if err != nil {
			judged = append(judged, judgedRuntime{File: file, Line: part.line, Warnings: []fieldFault{}, Errors: []fieldFault{part.notYAML(err)}})
			continue
		}
		for _, document := range found {
			each := judgedRuntime{File: file, Line: part.line, Errors: []fieldFault{}, Warnings: []fieldFault{}}
			each.judge(document)
			each.findLines(part)
			judged = append(judged, each)
		}
	}
	if len(judged) == 0 {
		judged = append(judged, judgedRuntime{File: file, Line: 1, Warnings: []fieldFault{}, Errors: []fieldFault{{Message: "holds no runtime"}}})
	}
	return judged
}

// lineWords are how the parser of YAML names a line of what it was handed.
var lineWords = regexp.MustCompile(`^line (\d+): `)

// notYAML is the fault of a document that cannot be read.
func (part *filePart) notYAML(err error) fieldFault {
	words := strings.Join(explain(err, "").details, "; ")
	fault := fieldFault{Line: part.line, Message: "is not YAML: " + lineWords.ReplaceAllString(words, "")}
	if match := lineWords.FindStringSubmatch(words); match != nil {
		number, _ := strconv.Atoi(match[1])
		fault.Line += number - 1
	}
	return fault
}

// judge fills in what is wrong with a document.
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
		refuse("kind", fmt.Sprintf("is a %s of %s, and not a TrainingRuntime or ClusterTrainingRuntime of %s", orDash(about.Kind), orDash(about.APIVersion), v2alpha1.GroupVersion))
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

// unknownField is the path in the words of the decoder: unknown field "spec.a".
func unknownField(fault error) string {
	if _, quoted, found := strings.Cut(fault.Error(), `"`); found {
		return strings.TrimSuffix(quoted, `"`)
	}
	return fault.Error()
}

// findLines says where in the file each fault is.
func (each *judgedRuntime) findLines(part filePart) {
	for _, faults := range [][]fieldFault{each.Errors, each.Warnings} {
		for i := range faults {
			if faults[i].Field != "" {
				faults[i].Line = part.lineOf(faults[i].Field)
			}
		}
	}
}

func (environment *environment) showJudged(judged []judgedRuntime) {
	errors, warnings := 0, 0
	for _, each := range judged {
		what := strings.TrimSpace(each.Kind + " " + each.Name)
		if what == "" {
			what = "document"
		}
		result := environment.terminal.paint(green, "ok")
		if len(each.Errors) > 0 {
			result = environment.terminal.paint(red, "refused")
		}
		fmt.Fprintf(environment.Out, "%s:%d: %s: %s\n", each.File, each.Line, what, result)
		environment.showFaults("error", red, each.Errors)
		environment.showFaults("warning", yellow, each.Warnings)
		errors, warnings = errors+len(each.Errors), warnings+len(each.Warnings)
	}
	fmt.Fprintf(environment.Out, "%s, %s in %s\n", counted(errors, "error"), counted(warnings, "warning"), counted(len(judged), "document"))
}

func (environment *environment) showFaults(word string, with colour, faults []fieldFault) {
	for _, fault := range faults {
		text := strings.TrimPrefix(fault.Field+": "+fault.Message, ": ")
		if fault.Line > 0 {
			text = fmt.Sprintf("line %d: %s", fault.Line, text)
		}
		lines := environment.terminal.wrap(text, 4+len(word))
		fmt.Fprintf(environment.Out, "  %s: %s\n", environment.terminal.paint(with, word), strings.Join(lines, "\n    "))
	}
}

func counted(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}
