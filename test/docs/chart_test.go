// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Every value of the chart is in its README.
func TestChartValuesAreDocumented(t *testing.T) {
	chart := filepath.Join(repository, "charts/trireme")
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var defaults map[string]any
	if err := yaml.Unmarshal(values, &defaults); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(string(readme), "\n")
	for _, path := range valuePaths("", defaults) {
		if !isDocumented(rows, path) {
			t.Errorf("the table in charts/trireme/README.md lacks %s", path)
		}
	}
}

// valuePaths are the values that a user sets, such as images.operator.digest.
func valuePaths(prefix string, values map[string]any) (paths []string) {
	for key, value := range values {
		nested, isMap := value.(map[string]any)
		// An empty map, or the resources of a container, is one value for users.
		if isMap && len(nested) > 0 && key != "resources" {
			paths = append(paths, valuePaths(prefix+key+".", nested)...)
		} else {
			paths = append(paths, prefix+key)
		}
	}
	return paths
}

// isDocumented looks for a row that names the whole path, or the last part of it after
// a path of the same group: `images.server.name`, `.digest`.
func isDocumented(rows []string, path string) bool {
	group, last := path[:strings.LastIndex(path, ".")+1], path[max(strings.LastIndex(path, "."), 0):]
	for _, row := range rows {
		if strings.Contains(row, "`"+path+"`") || strings.Contains(row, "`"+group) && strings.Contains(row, "`"+last+"`") {
			return true
		}
	}
	return false
}
