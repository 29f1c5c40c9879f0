package migrate

import (
	"encoding/json"
	"fmt"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// Existing are runtimes of single namespaces: those that a cluster has, and those
// that were made for other jobs. A job that needs the same takes it, and no runtime
// is written over by another of its name.
type Existing struct {
	names map[[2]string]bool
	specs map[[2]string]string
}

// Add adds a runtime.
func (existing *Existing) Add(runtime *v2alpha1.TrainingRuntime) {
	if existing.names == nil {
		existing.names, existing.specs = map[[2]string]bool{}, map[[2]string]string{}
	}
	existing.names[[2]string{runtime.Namespace, runtime.Name}] = true
	if spec := [2]string{runtime.Namespace, textOf(runtime)}; existing.specs[spec] == "" {
		existing.specs[spec] = runtime.Name
	}
}

// same is the name of a runtime that says the same; empty if there is none.
func (existing *Existing) same(runtime *v2alpha1.TrainingRuntime) string {
	if existing == nil {
		return ""
	}
	return existing.specs[[2]string{runtime.Namespace, textOf(runtime)}]
}

// freeName is the name of a runtime, or the next that is free.
func (existing *Existing) freeName(runtime *v2alpha1.TrainingRuntime) string {
	name := runtime.Name
	for number := 2; existing != nil && existing.names[[2]string{runtime.Namespace, name}]; number++ {
		name = fmt.Sprintf("%s-%d", runtime.Name, number)
	}
	return name
}

func textOf(runtime *v2alpha1.TrainingRuntime) string {
	text, err := json.Marshal(runtime.Spec)
	if err != nil {
		panic(err) // The type has nothing that JSON cannot say.
	}
	return string(text)
}
