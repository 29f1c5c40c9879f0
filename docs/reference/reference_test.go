// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"strings"
	"testing"

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
