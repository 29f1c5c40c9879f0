// SPDX-License-Identifier: Apache-2.0

// Package dashboards reads the Grafana dashboards of the chart.
package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Dashboard is the part of a dashboard that is checked.
type Dashboard struct {
	File       string `json:"-"`
	UID, Title string
	Panels     []Panel
	Templating struct {
		List []struct{ Name string }
	}
}

// Panel is a chart, a table, a number, or the title of a row.
type Panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Datasource  *struct{ UID string }
	Targets     []struct {
		RefID, Expr string
		Datasource  *struct{ UID string }
	}
}

// Read reads the dashboards of the chart below the root of the repository.
func Read(root string) (dashboards []*Dashboard, err error) {
	files, err := filepath.Glob(filepath.Join(root, "charts/trireme/files/dashboards/*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no dashboards below %s (%w)", root, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		dashboard := &Dashboard{File: filepath.Base(file)}
		if err := json.Unmarshal(content, dashboard); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		dashboards = append(dashboards, dashboard)
	}
	return dashboards, nil
}

// Interpolate replaces Grafana's variables, as Grafana does before it sends a query.
func Interpolate(query string, values map[string]string) string {
	pairs := []string{"$__rate_interval", "5m", "$__range", "1h"}
	for name, value := range values {
		pairs = append(pairs, "$"+name, value)
	}
	return strings.NewReplacer(pairs...).Replace(query)
}
