// SPDX-License-Identifier: Apache-2.0

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

// output is the writer for everything that is printed. It escapes control characters.
// It keeps the first write error, because not all callers check for one: a full disk
// must not look like success.
type output struct {
	to    io.Writer
	mutex sync.Mutex
	// rest is the start of a character that is not complete yet.
	rest []byte
	err  error
}

// Write prints a text with control characters escaped.
func (o *output) Write(text []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	safe, rest := escapeControl(nil, append(o.rest, text...))
	o.rest = bytes.Clone(rest)
	if err := o.pass(safe); err != nil {
		return 0, err
	}
	return len(text), nil
}

// pass prints bytes unchanged.
func (o *output) pass(data []byte) error {
	_, err := o.to.Write(data)
	if err != nil && o.err == nil {
		o.err = err
	}
	return err
}

// control sends an escape sequence to the terminal.
func control(to io.Writer, sequence string) {
	if output, isOutput := to.(*output); isOutput {
		output.mutex.Lock()
		defer output.mutex.Unlock()
		_ = output.pass([]byte(sequence)) // The output keeps the error.
		return
	}
	io.WriteString(to, sequence)
}

// verbatim prints bytes unchanged.
type verbatim struct{ *output }

func (v verbatim) Write(data []byte) (int, error) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if err := v.pass(data); err != nil {
		return 0, err
	}
	return len(data), nil
}

// logs returns the writer for the logs of jobs: unchanged, unless stdout is a terminal.
func (e *environment) logs() io.Writer {
	if e.terminal.width == 0 {
		return verbatim{e.output}
	}
	return e.output
}

// failure returns the first write error, or nil.
func (o *output) failure() error {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if len(o.rest) > 0 {
		_ = o.pass([]byte("\uFFFD"))
		o.rest = nil
	}
	if o.err == nil {
		return nil
	}
	return &failure{code: exitError, message: "cannot write the output", reason: "Output", details: []string{plainError(o.err)}}
}

// column returns a column of a table. Columns with a priority need -o wide.
func column(name string, priority int32) metav1.TableColumnDefinition {
	format := ""
	if name == "Name" {
		format = "name"
	}
	return metav1.TableColumnDefinition{Name: name, Type: "string", Format: format, Priority: priority}
}

// age formats the time since a moment as kubectl does.
func age(now, moment time.Time) string {
	if moment.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(moment))
}

// orDash returns "-" for an empty text.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// asUnstructured returns an object as it is printed: with its kind, and without managed
// fields.
func asUnstructured(object client.Object, kind *kind) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	removeEmpty(content)
	result := &unstructured.Unstructured{Object: content}
	result.SetGroupVersionKind(kind.GVK)
	result.SetManagedFields(nil)
	return result, nil
}

// removeEmpty removes empty maps, such as the status of a job that is not created
// yet.
func removeEmpty(content map[string]any) {
	for name, value := range content {
		below, isMap := value.(map[string]any)
		if !isMap {
			continue
		}
		removeEmpty(below)
		// Only these: an empty emptyDir, for example, has a meaning.
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

// say prints a message to stderr; data goes to stdout.
func (e *environment) say(format string, values ...any) {
	fmt.Fprintf(e.ErrOut, format+"\n", values...)
}
