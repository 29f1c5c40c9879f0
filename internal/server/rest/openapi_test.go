// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

func readDocument(t *testing.T) map[string]any {
	t.Helper()
	content, err := newDocument(allRoutes(), "test")
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// The document without the schemas of jobs, which are those of the CRDs.
func TestDocument(t *testing.T) {
	document := readDocument(t)
	known := document["components"].(map[string]any)["schemas"].(map[string]any)
	for _, kind := range []string{"TrainJob", "MPIJob", "TrainingRuntime", "ClusterTrainingRuntime"} {
		properties := known[kind].(map[string]any)["properties"].(map[string]any)
		if _, has := properties["spec"]; !has {
			t.Errorf("%s has no spec", kind)
		}
		delete(known, kind)
		delete(known, kind+"Status")
		delete(known, kind+"Spec")
	}
	content, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	goldenfile.Check(t, "testdata/openapi.json", content)
}

// Clients are generated from operation IDs, which must be unique.
func TestOperationsHaveNames(t *testing.T) {
	seen := map[string]string{}
	for _, route := range allRoutes() {
		if where, known := seen[route.id]; known {
			t.Errorf("%s is called %s, as is %s", route.path, route.id, where)
		}
		seen[route.id] = route.path
		if route.summary == "" || route.success == 0 {
			t.Errorf("%s %s says nothing of itself", route.method, route.path)
		}
		if (route.handle == nil) == (route.stream == nil) {
			t.Errorf("%s %s has not one handler", route.method, route.path)
		}
	}
}

// All references have a target.
func TestReferences(t *testing.T) {
	document := readDocument(t)
	known := document["components"].(map[string]any)["schemas"].(map[string]any)
	var look func(value any)
	look = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if reference, is := value["$ref"].(string); is && known[strings.TrimPrefix(reference, "#/components/schemas/")] == nil {
				t.Errorf("there is no %s", reference)
			}
			for _, key := range slices.Sorted(maps.Keys(value)) {
				look(value[key])
			}
		case []any:
			for _, each := range value {
				look(each)
			}
		}
	}
	look(document)
}

// The nine required endpoints of MPIJobs, and those of TrainJobs.
func TestRequiredRoutes(t *testing.T) {
	there := map[string]bool{}
	for _, route := range allRoutes() {
		there[route.method+" "+route.path] = true
	}
	const prefix = "/api/v1/namespaces/{namespace}/"
	for _, wanted := range []string{
		"POST " + prefix + "mpijobs", "GET " + prefix + "mpijobs", "GET " + prefix + "mpijobs/{name}", "DELETE " + prefix + "mpijobs/{name}",
		"GET " + prefix + "mpijobs/{name}/status", "GET " + prefix + "mpijobs/{name}/logs", "GET " + prefix + "mpijobs/{name}/logs/launcher",
		"GET " + prefix + "mpijobs/{name}/logs/worker/{index}", "POST " + prefix + "mpijobs/{name}/restart",
		"GET /api/v1/trainjobs", "GET /api/v1/trainjobs/{name}", "GET /api/v1/trainjobs/{name}/logs",
		"GET " + prefix + "trainjobs", "POST " + prefix + "trainjobs", "GET " + prefix + "trainjobs/{name}", "DELETE " + prefix + "trainjobs/{name}",
		"GET " + prefix + "trainjobs/{name}/logs", "GET " + prefix + "trainjobs/{name}/events", "GET " + prefix + "trainjobs/{name}/metrics",
		"GET " + prefix + "clustertrainingruntimes", "GET " + prefix + "quota",
		"GET /api/v1/watch/namespaces/{namespace}/trainjobs", "GET /api/v1/watch/namespaces/{namespace}/mpijobs",
	} {
		if !there[wanted] {
			t.Errorf("there is no %s", wanted)
		}
	}
}
