package migrate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Objects are what is to be created, in that order, as a person would write them.
func (result *Result) Objects() ([]map[string]any, error) {
	var made []any
	if result.Runtime != nil {
		made = append(made, result.Runtime)
	}
	made = append(made, result.TrainJob)
	var objects []map[string]any
	for _, object := range made {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("write what MPIJob %s became: %w", result.Report.Name, err)
		}
		delete(content, "status")
		withoutEmptyResources(content)
		objects = append(objects, content)
	}
	return objects, nil
}

// withoutEmptyResources leaves out what Go's types write although nothing is in it.
func withoutEmptyResources(value any) {
	switch node := value.(type) {
	case map[string]any:
		if resources, is := node["resources"].(map[string]any); is && len(resources) == 0 {
			delete(node, "resources")
		}
		for _, next := range node {
			withoutEmptyResources(next)
		}
	case []any:
		for _, next := range node {
			withoutEmptyResources(next)
		}
	}
}
