// SPDX-License-Identifier: Apache-2.0

// Command dashboards prints the queries of the chart's Grafana dashboards as a file of
// recording rules, so that promtool checks them. It runs in the root of the repository.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
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

func main() {
	log.SetFlags(0)
	dashboards, err := Read(".")
	if err != nil {
		log.Fatal(err)
	}
	rules, err := Rules(dashboards)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", rules)
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

// Rules returns the queries as recording rules.
func Rules(dashboards []*Dashboard) ([]byte, error) {
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for _, dashboard := range dashboards {
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				name := fmt.Sprintf("%s:panel_%d:%s", strings.TrimSuffix(dashboard.File, ".json"), panel.ID, target.RefID)
				rules = append(rules, rule{name, Interpolate(target.Expr, map[string]string{"namespace": "team", "job": "train"})})
			}
		}
	}
	return yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboards", "rules": rules}}})
}
