// SPDX-License-Identifier: Apache-2.0

// Command dashboards prints the queries of the chart's Grafana dashboards as a file of
// recording rules, so that promtool checks them. It runs in the root of the repository.
package main

import (
	"fmt"
	"log"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/testing/dashboards"
)

func main() {
	log.SetFlags(0)
	all, err := dashboards.Read(".")
	if err != nil {
		log.Fatal(err)
	}
	rules, err := Rules(all)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", rules)
}

// Rules returns the queries as recording rules.
func Rules(all []*dashboards.Dashboard) ([]byte, error) {
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for _, dashboard := range all {
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				name := fmt.Sprintf("%s:panel_%d:%s", strings.TrimSuffix(dashboard.File, ".json"), panel.ID, target.RefID)
				rules = append(rules, rule{name, dashboards.Interpolate(target.Expr, map[string]string{"namespace": "team", "job": "train"})})
			}
		}
	}
	return yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboards", "rules": rules}}})
}
