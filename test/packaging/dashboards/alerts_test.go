// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alerts are the queries of the chart's alerts by name.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile(root + "/charts/trireme/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			queries[rule.Alert] = rule.Expr
			if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s lacks a severity, a summary or a description", rule.Alert)
			}
		}
	}
	return queries
}

// promtool tests every alert, and the page about monitoring explains it.
func TestAlertsAreTestedAndDocumented(t *testing.T) {
	for _, file := range []string{"test/packaging/alerts-test.yaml", "docs/admin-guide/monitoring.md"} {
		content, err := os.ReadFile(root + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for name := range alerts(t) {
			if !strings.Contains(string(content), name) {
				t.Errorf("%s lacks %s", file, name)
			}
		}
	}
}
