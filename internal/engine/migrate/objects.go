// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Objects returns the objects to create, in order, without empty fields.
func (r *Result) Objects() ([]map[string]any, error) {
	var typed []any
	if r.Runtime != nil {
		typed = append(typed, r.Runtime)
	}
	typed = append(typed, r.TrainJob)
	var objects []map[string]any
	for _, object := range typed {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("write the conversion of MPIJob %s: %w", r.Report.Name, err)
		}
		delete(content, "status")
		withoutEmptyResources(content)
		objects = append(objects, content)
	}
	return objects, nil
}

// withoutEmptyResources removes empty resources, which Go types always encode.
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
