package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// output is where everything is printed. What is printed cannot control the
// terminal. It remembers that data did not arrive, since not all who print look: a
// disk that is full must not look like success.
type output struct {
	to    io.Writer
	mutex sync.Mutex
	// rest is the start of a character whose end is not written yet.
	rest []byte
	err  error
}

// Write prints a text with control characters made harmless.
func (output *output) Write(text []byte) (int, error) {
	output.mutex.Lock()
	defer output.mutex.Unlock()
	safe, rest := harmless(nil, append(output.rest, text...))
	output.rest = bytes.Clone(rest)
	if err := output.pass(safe); err != nil {
		return 0, err
	}
	return len(text), nil
}

// pass prints bytes as they are.
func (output *output) pass(data []byte) error {
	_, err := output.to.Write(data)
	if err != nil && output.err == nil {
		output.err = err
	}
	return err
}

// control sends a sequence of our own to the terminal.
func control(to io.Writer, sequence string) {
	if output, isOutput := to.(*output); isOutput {
		output.mutex.Lock()
		defer output.mutex.Unlock()
		_ = output.pass([]byte(sequence)) // The output remembers the error.
		return
	}
	io.WriteString(to, sequence)
}

// verbatim prints bytes as they are.
type verbatim struct{ *output }

func (verbatim verbatim) Write(data []byte) (int, error) {
	verbatim.mutex.Lock()
	defer verbatim.mutex.Unlock()
	if err := verbatim.pass(data); err != nil {
		return 0, err
	}
	return len(data), nil
}

// logs is where the log of a job goes: byte for byte, unless a terminal shows it.
func (environment *environment) logs() io.Writer {
	if environment.terminal.width == 0 {
		return verbatim{environment.output}
	}
	return environment.output
}

// failure is nil if everything was written.
func (output *output) failure() error {
	output.mutex.Lock()
	defer output.mutex.Unlock()
	if len(output.rest) > 0 {
		_ = output.pass([]byte("\uFFFD"))
		output.rest = nil
	}
	if output.err == nil {
		return nil
	}
	return &failure{code: exitError, message: "the output could not be written", reason: "Output", details: []string{plainError(output.err)}}
}

// column of a table. Those with a priority are shown with -o wide only.
func column(name string, priority int32) metav1.TableColumnDefinition {
	format := ""
	if name == "Name" {
		format = "name"
	}
	return metav1.TableColumnDefinition{Name: name, Type: "string", Format: format, Priority: priority}
}

// age is how kubectl writes how long ago something was.
func age(now, moment time.Time) string {
	if moment.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(moment))
}

// orDash stands in for what is not there.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// asUnstructured is an object as it will be printed: with its kind, and without the
// bookkeeping of who changed which field.
func asUnstructured(object client.Object, kind *kind) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	withoutEmpty(content)
	made := &unstructured.Unstructured{Object: content}
	made.SetGroupVersionKind(kind.GVK)
	made.SetManagedFields(nil)
	return made, nil
}

// withoutEmpty removes what holds nothing, such as the status of a job that is not
// created yet.
func withoutEmpty(content map[string]any) {
	for name, value := range content {
		below, isMap := value.(map[string]any)
		if !isMap {
			continue
		}
		withoutEmpty(below)
		// An emptyDir says something although it is empty.
		if len(below) == 0 && slices.Contains([]string{"metadata", "status", "resources", "runPolicy"}, name) {
			delete(content, name)
		}
	}
}

func indentedJSON(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "    ")
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// say tells the person at the terminal something; what is data goes to the output.
func (environment *environment) say(format string, values ...any) {
	fmt.Fprintf(environment.ErrOut, format+"\n", values...)
}
