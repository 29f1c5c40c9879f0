// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func TestTypeName(t *testing.T) {
	for want, goType := range map[string]reflect.Type{
		"integer":                            reflect.TypeFor[*int32](),
		"list of string":                     reflect.TypeFor[[]string](),
		"map of string":                      reflect.TypeFor[map[string]string](),
		"string":                             reflect.TypeFor[v2alpha1.MPIImplementation](),
		"[Source](#source)":                  reflect.TypeFor[*v2alpha1.Source](),
		"list of [EnvVar][kubernetes]":       reflect.TypeFor[[]corev1.EnvVar](),
		"[ResourceList][kubernetes]":         reflect.TypeFor[*corev1.ResourceList](),
		"map of [RuntimeRef](#runtimeref)":   reflect.TypeFor[map[string]*v2alpha1.RuntimeRef](),
		"[ResourceRequirements][kubernetes]": reflect.TypeFor[corev1.ResourceRequirements](),
	} {
		if got, _ := typeName(goType); got != want {
			t.Errorf("%s is %q, want %q", goType, got, want)
		}
	}
}

// All fields of our own types have a description, and no type of Kubernetes has a table.
func TestFieldsAreDescribed(t *testing.T) {
	kinds, err := readKinds()
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]bool{}
	for _, kind := range kinds {
		for _, table := range kind.Types {
			tables[table.Name] = true
			for _, field := range table.Fields {
				if field.Description == "" && field.Name != "metadata" {
					t.Errorf("%s.%s has no description", table.Name, field.Name)
				}
			}
		}
	}
	for name, want := range map[string]bool{"TrainJob": true, "MPIJobSpec": true, "TimelineEntry": true, "PodTemplateSpec": false, "ObjectMeta": false} {
		if tables[name] != want {
			t.Errorf("a table of %s: %t, want %t", name, tables[name], want)
		}
	}
}

func TestRESTPage(t *testing.T) {
	content, err := readREST()
	if err != nil {
		t.Fatal(err)
	}
	page, err := render("rest.md", content)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 429 | Too Many Requests |",
		"[getMPIJobFlat](#getmpijob)",
		"### createTrainJob",
		"- Body: [TrainJob](api.md#trainjob) or [TrainJobSpec](api.md#trainjobspec) (`application/json`, `application/yaml`)",
		"- Response: 204 without a body\n- Errors: 404, 409\n",
		"| `limit` | query | integer, 1 to 1000 | Maximum number of jobs per page. Default: `100` |",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

func TestDescribe(t *testing.T) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "jobs", Help: "Jobs, by \"state\": running."}, []string{"namespace", "state"})
	found, err := describe(gauge)
	if err != nil || len(found) != 1 || found[0].Name != "jobs" || found[0].Type != "gauge" || strings.Join(found[0].Labels, " ") != "namespace state" || found[0].Meaning != `Jobs, by "state": running.` {
		t.Errorf("%+v (%v)", found, err)
	}
	if _, err := describe(prometheus.NewSummary(prometheus.SummaryOpts{Name: "x"})); err == nil {
		t.Error("a type that the page does not know is no error")
	}
	if _, err := describe(prometheus.NewGauge(prometheus.GaugeOpts{Name: "x", ConstLabels: prometheus.Labels{"a": "b"}})); err == nil {
		t.Error("a description that is not understood is no error")
	}
}

// Every metric says what it is, and none has a label for each job or user.
func TestMetricsAreDescribed(t *testing.T) {
	components, err := readMetrics()
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range components {
		if len(component.Metrics) == 0 {
			t.Errorf("%s has no metrics", component.Title)
		}
		for _, metric := range component.Metrics {
			if !strings.HasSuffix(metric.Meaning, ".") {
				t.Errorf("the help of %s is not a sentence: %q", metric.Name, metric.Meaning)
			}
			for _, label := range metric.Labels {
				if !slices.Contains([]string{"namespace", "runtime", "queue", "state", "failure_reason", "reason", "route", "method", "code", "cause", "operation", "kind", "type", "result"}, label) {
					t.Errorf("%s has the label %s; add it here if the number of its values is limited", metric.Name, label)
				}
			}
		}
	}
}
