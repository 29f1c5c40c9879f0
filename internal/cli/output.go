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

// output is where data go. It remembers that they did not arrive, since not all who
// print look: a disk that is full must not look like success.
type output struct {
	to    io.Writer
	mutex sync.Mutex
	err   error
}

func (output *output) Write(data []byte) (int, error) {
	output.mutex.Lock()
	defer output.mutex.Unlock()
	written, err := output.to.Write(data)
	if err != nil && output.err == nil {
		output.err = err
	}
	return written, err
}

// failure is nil if everything was written.
func (output *output) failure() error {
	output.mutex.Lock()
	defer output.mutex.Unlock()
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
