// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"fmt"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// Existing are runtimes of namespaces: those of the cluster, and those created for other
// jobs. A job that needs the same spec uses an existing one, and a new runtime never has
// the name of another.
type Existing struct {
	names map[[2]string]bool
	specs map[[2]string]string
}

// Add adds a runtime.
func (e *Existing) Add(runtime *v2alpha1.TrainingRuntime) {
	if e.names == nil {
		e.names, e.specs = map[[2]string]bool{}, map[[2]string]string{}
	}
	e.names[[2]string{runtime.Namespace, runtime.Name}] = true
	if spec := [2]string{runtime.Namespace, textOf(runtime)}; e.specs[spec] == "" {
		e.specs[spec] = runtime.Name
	}
}

// same returns the name of a runtime with the same spec; empty if there is none.
func (e *Existing) same(runtime *v2alpha1.TrainingRuntime) string {
	if e == nil {
		return ""
	}
	return e.specs[[2]string{runtime.Namespace, textOf(runtime)}]
}

// freeName returns the name of a runtime, with a number if it is in use.
func (e *Existing) freeName(runtime *v2alpha1.TrainingRuntime) string {
	name := runtime.Name
	for number := 2; e != nil && e.names[[2]string{runtime.Namespace, name}]; number++ {
		name = fmt.Sprintf("%s-%d", runtime.Name, number)
	}
	return name
}

func textOf(runtime *v2alpha1.TrainingRuntime) string {
	text, err := json.Marshal(runtime.Spec)
	if err != nil {
		panic(err) // The type can always be encoded.
	}
	return string(text)
}
